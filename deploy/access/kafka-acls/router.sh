kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:router --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:router --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic _kafka_pubsub.delay. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:router --operation Write --topic orders
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:router --operation Read --group _kafka_pubsub.delay
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:router --operation Write --transactional-id _kafka_pubsub.delay- --resource-pattern-type prefixed
