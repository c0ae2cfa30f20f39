"""Which lanes a topic may have, and the names of their Kafka topics.

A lane is a priority and a class: durable or transient. Each lane in use is a Kafka topic `orders.lane.p7` (durable) or
`orders.lane.t4` (transient). The durable lane of the default priority is the topic `orders` itself.

Rules
1. Priorities go from 0 to one below their number; the highest goes first.
2. The default priority is the middle one, and stays as it is once a topic has lanes: else the messages in the plain
   topic would change their priority.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_pubsub.errors import Call, FailedPrecondition, InvalidArgument

__all__ = [
    "AGEING",
    "LANE_INFIX",
    "LANE_ROOM",
    "MOST_PRIORITIES",
    "Lane",
    "LaneGone",
    "LaneRules",
    "every_name",
    "lane_of",
    "middle_priority",
    "topic_of",
]

#: Seconds that a message may be passed over for others of higher priority, unless a subscription says otherwise.
AGEING = 5.0
#: The most priorities of a topic: their numbers have one digit.
MOST_PRIORITIES = 10

#: What separates a topic's name from its lane's in the name of a lane's Kafka topic.
LANE_INFIX = ".lane."

#: The characters that a lane's name has beyond its topic's.
LANE_ROOM = len(LANE_INFIX) + 2

_LANE = re.compile(r"(.+)\.lane\.([pt])([0-9])")


class LaneGone(FailedPrecondition):
    """Kafka doesn't have the lane that the catalog names. That also happens with a broker that has just started."""


class Lane(NamedTuple):
    """A priority and a class of messages."""

    priority: int
    durable: bool

    @property
    def suffix(self) -> str:
        """What its Kafka topic's name has beyond the topic's."""
        return f"{LANE_INFIX}{'p' if self.durable else 't'}{self.priority}"

    @property
    def number(self) -> int:
        """Its number, from 1, among all lanes that a topic may have beside its own Kafka topic."""
        return 1 + self.priority + (0 if self.durable else MOST_PRIORITIES)

    @classmethod
    def at(cls, number: int) -> Lane:
        """Returns the lane with this number."""
        return cls((number - 1) % MOST_PRIORITIES, number <= MOST_PRIORITIES)


def lane_of(name: str) -> tuple[str, Lane] | None:
    """Returns the topic and the lane that a Kafka topic's name stands for; None: it isn't the name of a lane."""
    found = _LANE.fullmatch(name)
    return None if found is None else (found[1], Lane(int(found[3]), found[2] == "p"))


def topic_of(name: str) -> str:
    """Returns the topic of a lane's Kafka topic; another name is returned as it is."""
    found = lane_of(name)
    return name if found is None else found[0]


def every_name(topic: str) -> list[str]:
    """Returns the names of all Kafka topics that a topic may have: its own, and one for each lane."""
    lanes = (Lane(priority, durable) for priority in range(MOST_PRIORITIES) for durable in (True, False))
    return [topic, *(topic + lane.suffix for lane in lanes)]


def middle_priority(priorities: int) -> int:
    """Returns the default priority of a topic that gets so many."""
    return (priorities - 1) // 2


class LaneRules(NamedTuple):
    """The lanes that a topic may have."""

    topic: str
    priorities: int
    transient: bool
    default: int

    @property
    def any(self) -> bool:
        """Whether the topic may have another lane than its own Kafka topic."""
        return self.priorities > 1 or self.transient

    @property
    def lanes(self) -> list[Lane]:
        """The lanes that the topic may have: the highest priority first, the durable one before the transient one."""
        classes = (True, False) if self.transient else (True,)
        return [Lane(each, durable) for each in reversed(range(self.priorities)) for durable in classes]

    def name(self, lane: Lane) -> str:
        """Returns the name of a lane's Kafka topic."""
        return self.topic if lane == (self.default, True) else self.topic + lane.suffix

    def choose(self, priority: object, durable: object) -> Lane:
        """Returns the lane of a message; None takes the default. Raises `InvalidArgument`, which names the field."""
        if durable is not None and not isinstance(durable, bool):
            raise InvalidArgument(f"durable must be True or False, not {durable!r:.60}")
        if durable is False and not self.transient:
            give = Call("update_topic", self.topic, (("transient", True),))
            raise InvalidArgument(
                f"durable=False: topic {self.topic!r} has no transient class; leave it out, or give the topic one with "
                f"{give}",
                calls=(give,),
            )
        if priority is None:
            return Lane(self.default, durable is not False)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidArgument(f"priority must be a whole number, not {priority!r:.60}")
        if not 0 <= priority < self.priorities:
            raise self._beyond(priority)
        return Lane(priority, durable is not False)

    def _beyond(self, priority: int) -> InvalidArgument:
        if self.priorities == 1:
            more = min(max(priority + 1, 2), MOST_PRIORITIES)
            give = Call("update_topic", self.topic, (("priorities", more),))
            return InvalidArgument(
                f"priority {priority}: topic {self.topic!r} has one priority, 0; leave it out, or give the topic more "
                f"with {give}",
                calls=(give,),
            )
        return InvalidArgument(
            f"priority {priority}: topic {self.topic!r} has the priorities 0 to {self.priorities - 1}, of which the "
            "highest goes first"
        )
