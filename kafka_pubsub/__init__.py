"""Pub/Sub semantics on Apache Kafka."""
