kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --operation DescribeConfigs --topic orders
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --topic orders.sub.billing.retry
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Describe --group billing
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --topic orders-dead
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --topic _kafka_pubsub.deadletters
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Read --topic _kafka_pubsub.delay. --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:monitor --operation Describe --group _kafka_pubsub.delay
