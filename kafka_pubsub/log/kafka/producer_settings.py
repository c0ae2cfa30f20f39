"""The settings of the producers that publish: what both kinds of writers share."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.config import Batching
from kafka_pubsub.log.kafka.configuration import ConfigValue

__all__ = ["Settings", "join_settings"]

#: librdkafka's settings: those that a user's config may change, and those that it may not.
Settings = tuple[dict[str, ConfigValue], dict[str, ConfigValue]]


def join_settings(
    batching: Batching, max_batch_bytes: int, longest_wait: float, rules: Mapping[str, ConfigValue]
) -> Settings:
    """Returns the settings of a producer with these rules; a message waits so many seconds at most for others."""
    batches: dict[str, ConfigValue] = {
        "linger.ms": min(batching.max_latency, longest_wait) * 1000,
        "batch.num.messages": batching.max_messages,
        # The broker counts a whole batch against the topic's limit, not a message.
        "batch.size": min(batching.max_bytes, max_batch_bytes),
    }
    fixed: dict[str, ConfigValue] = {
        **rules,
        "partitioner": "murmur2_random",
        # librdkafka's estimate is a few bytes above the stored size that was checked before.
        "message.max.bytes": min(max(max_batch_bytes + 1000, 1_000_000), 1_000_000_000),
        # Publishing is bounded by the publishers' own flow control, which counts what the user configured.
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_147_483_647,
    }
    if batching == Batching():
        return batches, fixed
    return {}, {**fixed, **batches}
