"""The topics of multicast: the names of participants, the topic of receipts, the sequencers' group.

Rules
1. A participant is a partition of a causal topic. It goes by the topic's name if the topic has one partition, else by
   the name, a slash and the partition's number.
2. A message with a key goes to the partition of its key in each topic, as publishing does; one without a key to that of
   its id. The partition 0 of a topic speaks for a handle to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.core.partitioner import partition_of

__all__ = ["GROUP", "RECEIPTS", "RECEIPT_PARTITIONS", "RECEIPT_SETTINGS", "participant", "place_of", "where"]

#: Where publishers learn that a message has got its place in the order.
RECEIPTS = "_kafka_pubsub.multicast.receipts"
RECEIPT_PARTITIONS = 4
#: A publisher reads its receipts at once; nothing else does.
RECEIPT_SETTINGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": str(3_600_000)}
#: The consumer group of the sequencers.
GROUP = "_kafka_pubsub.multicast"


def participant(topic: str, partition: int, partitions: int) -> str:
    """Returns the name of a partition that takes part."""
    return topic if partitions == 1 else f"{topic}/{partition}"


def place_of(name: str) -> tuple[str, int]:
    """Returns the topic and the partition of a participant."""
    topic, _, partition = name.partition("/")
    return topic, int(partition or 0)


def where(key: bytes | None, message: str, partitions: int) -> int:
    """Returns the partition in which a message goes."""
    return 0 if partitions == 1 else partition_of(message.encode() if key is None else key, partitions)
