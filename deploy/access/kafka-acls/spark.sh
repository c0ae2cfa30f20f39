kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:spark --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:spark --operation Read --topic orders
