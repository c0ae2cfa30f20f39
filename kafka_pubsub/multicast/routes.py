"""Where a message goes: the topics of a call, the partitions of them that take part, and what lies in their inboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.model import NewRecord
from kafka_pubsub.multicast.layout import participant, place_of, where
from kafka_pubsub.multicast.records import StageRecord, encode_stage
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["Route", "Target", "Way", "records_of_stage", "way_of_deletion"]


class Target(NamedTuple):
    """A causal topic that takes part in a message, as the catalog has it. `inbox_id`: of its inbox."""

    name: str
    partitions: int
    max_message_bytes: int
    inbox_id: str = ""
    topic_id: str = ""

    def participant(self, number: int = 0) -> str:
        """Returns the name of a partition of it."""
        return participant(self.name, number, self.inbox_id)


class Way(NamedTuple):
    """Where a message goes. Messages of equal ways may share a batch.

    `participants`: destinations and handles, each once, in the order of their names. `lasting`: whether the message
    counts as sent only with its receipt.
    """

    destinations: tuple[str, ...]
    handles: tuple[str, ...]
    deletes: str
    participants: tuple[str, ...]
    lasting: bool


class Route:
    """The topics of one kind of call."""

    __slots__ = ("_one", "_ways", "handles", "room", "targets")

    def __init__(self, targets: Sequence[Target], handles: Sequence[Target] = ()) -> None:
        self.targets, self.handles = targets, handles
        #: Bytes that surely fit into each topic.
        self.room = min((each.max_message_bytes for each in targets), default=0)
        self._ways: dict[tuple[int, ...], Way] = {}
        # If there is only one way.
        self._one = self._make((0,) * len(targets)) if all(each.partitions == 1 for each in targets) else None

    def way(self, key: bytes | None, name: str) -> Way:
        """Returns the way of a message with this key, or without one and with this name."""
        if self._one is not None:
            return self._one
        numbers = tuple(where(key, name, each.partitions) for each in self.targets)
        way = self._ways.get(numbers)
        if way is None:
            way = self._ways[numbers] = self._make(numbers)
        return way

    def _make(self, numbers: Sequence[int]) -> Way:
        destinations = [each.participant(number) for each, number in zip(self.targets, numbers, strict=True)]
        return _way(destinations, [each.participant() for each in self.handles], "")


def way_of_deletion(target: Target, notified: Sequence[Target]) -> Way:
    """Returns the way of a topic's deletion: all partitions of all topics concerned."""
    destinations = [
        each.participant(number)
        for each in (target, *notified)
        for number in range(each.partitions if each is target else 1)
    ]
    return _way(destinations, (), f"{target.name}@{target.topic_id}")


def _way(destinations: Sequence[str], handles: Sequence[str], deletes: str) -> Way:
    participants = tuple(sorted({*destinations, *handles}))
    lasting = len(participants) > 1 or bool(deletes)
    return Way(tuple(sorted(destinations)), tuple(handles), deletes, participants, lasting)


def records_of_stage(staged: StageRecord, value: bytes) -> list[NewRecord]:
    """Returns a batch's stage in the inboxes of all its participants; destinations get the messages as well."""
    header, destinations = [encode_stage(staged)], set(staged.stage.destinations)
    return [
        NewRecord(inbox_topic(topic), number, None, value if name in destinations else None, header)
        for name in staged.stage.participants
        for topic, number, _ in (place_of(name),)
    ]
