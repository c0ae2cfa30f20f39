"""Tunables that `LocalKafka` and `up` share, each with its unit and reason."""

from __future__ import annotations

from typing import Final

from kafka_pubsub.errors import InvalidArgument

__all__ = ["DEFAULT_HEAP_MB", "LEAST_HEAP_MB", "STOP_TIMEOUT_S", "checked_heap", "checked_port"]

# MB. Carried every benchmark of ours.
DEFAULT_HEAP_MB: Final = 512
# MB. A broker with its internal topics doesn't start reliably with less.
LEAST_HEAP_MB: Final = 128
# Seconds. An orderly stop takes about half a second; a broker that needs longer hangs, and Kafka survives
# a kill.
STOP_TIMEOUT_S: Final = 20.0


def checked_heap(heap_mb: int) -> int:
    """Returns the heap size if it is enough for a broker; raises an error otherwise."""
    if heap_mb < LEAST_HEAP_MB:
        raise InvalidArgument(f"heap_mb is {heap_mb}; a broker needs {LEAST_HEAP_MB} at least.")
    return heap_mb


def checked_port(port: int) -> int:
    """Returns the port if it is a valid one; raises an error otherwise."""
    if not 1 <= port <= 65535:
        raise InvalidArgument(f"port is {port}; it must be from 1 to 65535.")
    return port
