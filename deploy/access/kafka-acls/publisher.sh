kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:publisher --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:publisher --operation Write --operation DescribeConfigs --topic orders
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:publisher --operation Write --operation DescribeConfigs --topic _kafka_pubsub.delay. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:publisher --operation Describe --group _kafka_pubsub.delay
