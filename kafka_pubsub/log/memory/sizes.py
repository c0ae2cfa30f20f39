"""The limits of a topic for the size of records."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.errors import InvalidArgument, PubSubError
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import Header

__all__ = ["refusal"]

#: Bytes of a batch of one record beside key, value and headers (a broker counts the batch).
_BATCH_OVERHEAD = 70


def refusal(
    cluster: MemoryCluster,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[Header] | None,
) -> PubSubError | None:
    """Returns why the topic refuses the record; None if it takes it. Call it under `changed`."""
    try:
        limit = cluster.info(topic).max_message_bytes
    except PubSubError as error:
        return error
    size = _BATCH_OVERHEAD + len(value or b"") + len(key or b"")
    size += sum(len(name) + len(content or b"") for name, content in headers or ())
    if size <= limit:
        return None
    return InvalidArgument(f"the message has about {size} bytes, topic {topic} takes at most {limit}")
