"""What a topic takes, by size."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.memory.cluster import MemoryCluster
from kafka_pubsub.model import Header

__all__ = ["refusal"]

#: What a batch of one record takes beside key, value and headers, in bytes (a stock broker counts the batch).
_BATCH_OVERHEAD = 70


def refusal(
    cluster: MemoryCluster,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[Header] | None,
) -> PubSubError | None:
    """Why the topic doesn't take the record; None if it does. Call it under `changed`."""
    try:
        limit = cluster.info(topic).max_message_bytes
    except PubSubError as error:
        return error
    size = _BATCH_OVERHEAD + len(value or b"") + len(key or b"")
    size += sum(len(name) + len(content or b"") for name, content in headers or ())
    if size <= limit:
        return None
    return InvalidArgument(f"the message has about {size} bytes, topic {topic} takes at most {limit}")
