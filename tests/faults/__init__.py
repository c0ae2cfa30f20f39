"""Rounds with real processes on a real cluster while something is broken on purpose; see `__main__`."""

from kafka_pubsub.client import resources

resources.REDELIVERY_BUILT = True  # type: ignore[misc]
