"""What all rooms need: a session of Spark, the address of Kafka, files and tables."""
