"""The topics of delayed delivery, declared once: names, settings, and the way of a delay through the tiers.

Theory. A delayed message comes in through the topic `INGEST`. Tier k is a topic whose records wait 2**k seconds. The
whole seconds of a delay are a sum of powers of two, so their binary digits say which tiers a message passes: each once,
the largest first. What is left below a second is waited out in memory.

Rules
1. All these topics have the same number of partitions; partition p of each belongs to one router. The number can be
   raised (`growth.py`); the topic of dead letters then keeps its own.
2. Retention deletes nothing: the router trims what it has handled. Records may be as large as any home topic takes.
   Those of tiers carry the time at which they leave as their timestamp, years ahead if need be; those of ingest that
   at which the broker stored them, from which delays count.
3. Which tiers there are says how long a delay may be; there are no gaps between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = [
    "DEAD",
    "GROUP",
    "INGEST",
    "MOST_TIERS",
    "PARTITIONS",
    "SMALL_PARTITIONS",
    "UNIT",
    "DelayLayout",
    "longest",
    "path",
    "tier_topic",
    "tiers_of",
]

#: Where delayed messages come in, and the routers' ticks.
INGEST = "_kafka_pubsub.delay.in"
#: What no router can deliver: the home topic is gone, or the record isn't ours.
DEAD = "_kafka_pubsub.delay.dead"
#: The consumer group of the routers.
GROUP = "_kafka_pubsub.delay"
#: Milliseconds that a record waits in tier 0.
UNIT = 1000
#: 2**28 - 1 seconds are eight and a half years.
MOST_TIERS = 28
#: Partitions unless told otherwise: as many routers can share the work, and no growth is needed until there are more.
PARTITIONS = 12
#: The same in memory, where one process is all that there is.
SMALL_PARTITIONS = 2

_TIER = re.compile(re.escape("_kafka_pubsub.delay.") + r"(\d\d)")
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_INT64 = 2**63 - 1
_MIB = 1024 * 1024


def tier_topic(number: int) -> str:
    """The topic of tier `number`, whose records wait 2**number seconds."""
    return f"_kafka_pubsub.delay.{number:02}"


def tiers_of(topics: Iterable[str]) -> int:
    """How many tiers these topics make, counted from tier 0 up to the first one that is missing."""
    found = {int(match[1]) for match in map(_TIER.fullmatch, topics) if match}
    return next(number for number in range(len(found) + 1) if number not in found)


def longest(tiers: int) -> int:
    """Seconds of the longest delay that so many tiers can hold."""
    return (1 << tiers) - 1


def path(seconds: int) -> tuple[int, ...]:
    """The tiers that a delay of so many whole seconds passes, in their order."""
    return tuple(tier for tier in reversed(range(seconds.bit_length())) if seconds >> tier & 1)


class DelayLayout(NamedTuple):
    """The declaration: everything that makes these topics, here and in whatever tool owns the cluster."""

    tiers: int = MOST_TIERS
    partitions: int = PARTITIONS

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that a router reads: where messages come in, then the tiers."""
        return INGEST, *map(tier_topic, range(self.tiers))

    def settings_of(self, topic: str) -> Mapping[str, str]:
        """Returns what one of them, or the dead letters' topic, is configured with."""
        return {**self.settings, **_STAMPED} if topic == INGEST else self.settings

    @property
    def settings(self) -> Mapping[str, str]:
        """What all of them are configured with; ingest besides has the brokers stamp its records."""
        return {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(64 * _MIB),
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(_INT64),
            "message.timestamp.after.max.ms": str(_INT64),
            "compression.type": "producer",
            "unclean.leader.election.enable": "false",
            # Deleted records free their disk with the segment that they are in.
            "segment.bytes": str(64 * _MIB),
            "segment.index.bytes": str(_MIB),
        }
