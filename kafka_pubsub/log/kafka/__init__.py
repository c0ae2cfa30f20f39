"""The adapters to Apache Kafka, and the only room that imports confluent_kafka.

`backend.KafkaBackend` makes all of them. Importing this package alone loads nothing heavy.
"""
