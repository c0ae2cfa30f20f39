"""`kafka-pubsub demo`: order per key, proven live on a real Kafka.

`story` makes the events, `run` publishes and consumes them, `ledger` judges the order, `screen` draws it,
`command` puts them together.
"""
