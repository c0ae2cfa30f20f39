kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --operation DescribeConfigs --topic orders
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --operation Write --operation Delete --topic orders.sub.billing.retry
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Write --operation Read --operation Delete --topic orders-dead
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --group billing
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Write --transactional-id billing- --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --operation Write --topic _kafka_pubsub.deadletters
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Read --operation Delete --group _kafka_pubsub.deadletter.billing
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:subscriber --operation Write --transactional-id _kafka_pubsub.deadletter.billing
