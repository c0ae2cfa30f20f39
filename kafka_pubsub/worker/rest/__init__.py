"""The REST interface of a worker, in Kafka Connect's dialect."""
