"""Watching the package at work: metrics, traces and logs. Nothing below imports it: parts count, and it reads.

`metrics.py` serves what parts have counted and what Kafka knows (extra `metrics`), `tracing.py` makes spans (extra
`tracing`), `logs.py` formats the log as JSON.
"""
