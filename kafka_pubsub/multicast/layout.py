"""The topics of multicast: the names of participants, the topic of receipts, the sequencers' group.

Rules
1. A participant is a partition of a causal topic's inbox. It goes by the topic's name, a slash, the partition's number,
   an `@` and the beginning of the inbox's id. So an inbox that was deleted and made again is another participant, and a
   partition that another tool adds to the topic changes no name.
2. A message with a key goes to the partition of its key in each topic, as publishing does; one without a key to that of
   a name that its publisher gives it. The partition 0 of a topic speaks for a handle to it.
3. A message's id is its batch's, a dot, and its number in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from kafka_pubsub.log.partitioner import partition_of

__all__ = [
    "DEAD",
    "DEAD_SETTINGS",
    "GROUP",
    "RECEIPTS",
    "RECEIPT_PARTITIONS",
    "RECEIPT_SETTINGS",
    "Place",
    "message_id",
    "participant",
    "place_of",
    "publisher_id",
    "where",
]

#: Where publishers learn that a message has got its place in the order.
RECEIPTS = "_kafka_pubsub.multicast.receipts"
RECEIPT_PARTITIONS = 4
#: A publisher reads its receipts at once; nothing else does.
RECEIPT_SETTINGS: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": str(3_600_000)}
#: What no sequencer can deliver: the home topic refused it, or the record of an inbox isn't ours.
DEAD = "_kafka_pubsub.multicast.dead"
#: Kafka deletes nothing of it, and it takes whatever an inbox takes.
DEAD_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(2**31 - 1),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "compression.type": "producer",
    "unclean.leader.election.enable": "false",
}
#: Characters of an inbox's id in names: enough to tell the inboxes apart that a topic ever has.
_ID_LENGTH = 8
#: The consumer group of the sequencers.
GROUP = "_kafka_pubsub.multicast"


class Place(NamedTuple):
    """What a participant's name says. `inbox`: the beginning of the inbox's id."""

    topic: str
    partition: int
    inbox: str


def publisher_id(name: str) -> str:
    """Returns the transactional id of a client that writes to inboxes; `name` tells it from others."""
    return f"{GROUP}.publisher-{name}"


def participant(topic: str, partition: int, inbox_id: str) -> str:
    """Returns the name of a partition that takes part; `inbox_id`: that of its inbox."""
    return f"{topic}/{partition}@{inbox_id[:_ID_LENGTH]}"


@lru_cache(10_000)
def place_of(name: str) -> Place:
    """Returns the parts of a participant's name."""
    place, _, inbox = name.partition("@")
    topic, _, partition = place.partition("/")
    return Place(topic, int(partition) if partition.isdecimal() else 0, inbox)


def message_id(batch: str, number: int) -> str:
    """Returns the id of a message of a batch."""
    return f"{batch}.{number}"


def where(key: bytes | None, name: str, partitions: int) -> int:
    """Returns the partition to which a message with this key goes, or without one and with this name."""
    return 0 if partitions == 1 else partition_of(name.encode() if key is None else key, partitions)
