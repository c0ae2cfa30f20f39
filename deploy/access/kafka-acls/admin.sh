kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Create --operation DescribeConfigs --cluster
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Read --operation Write --operation DescribeConfigs --topic _kafka_pubsub. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Read --operation Alter --operation AlterConfigs --operation Delete --topic orders
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Read --operation Alter --operation AlterConfigs --operation Delete --topic orders.sub. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Alter --operation AlterConfigs --operation Delete --topic orders-dead
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Read --operation Delete --group billing
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Delete --group _kafka_pubsub.deadletter.billing
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:admin --operation Write --transactional-id _kafka_pubsub.catalog
