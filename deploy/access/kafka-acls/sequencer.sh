kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Read --topic _kafka_pubsub.catalog
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Read --operation Write --topic stock
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic stock.inbox
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Write --topic _kafka_pubsub.multicast.receipts
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Write --topic _kafka_pubsub.multicast.dead
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Read --group _kafka_pubsub.multicast
kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:sequencer --operation Write --transactional-id _kafka_pubsub.multicast- --resource-pattern-type prefixed
