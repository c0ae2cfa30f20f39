"""Publisher and subscriber over the ports of a log; knows no Kafka."""
