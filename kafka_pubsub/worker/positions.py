"""Reads and moves the positions of subscriptions, as an operator asks for it by REST.

Rules
1. Positions are moved only while no member receives: the broker refuses it otherwise, and everything stays. Workers
   that were told to stop a moment ago are waited for.
2. A moved position names no finished messages: all that lie behind it come again. Messages in retry topics stay there.
3. A position is never beyond the last message, nor before the oldest one that is left.
4. A topic with causal order keeps its positions: earlier deliveries count for later messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["Position", "move_positions", "read_positions"]

#: Seconds between two tries while members leave.
_POLL = 0.2


class Position(NamedTuple):
    """Where a subscription is in one partition. `lag`: the messages behind its position."""

    topic: str
    partition: int
    offset: int
    lag: int


def read_positions(backend: Backend, subscriptions: Iterable[str]) -> list[Position]:
    """Returns the positions of the subscriptions that exist, in their topics and lanes."""
    return [each for record in _records(backend, subscriptions) for each in _positions(backend, record)]


def move_positions(
    backend: Backend,
    subscriptions: Iterable[str],
    wanted: Mapping[TopicPartition, int | None] | None,
    patience: float = 15.0,
) -> None:
    """Moves positions; raises `FailedPrecondition` while members receive, `InvalidArgument` for a missing partition.

    `wanted`: the new positions; None for one of them, or instead of all: the oldest message that is left. `patience`:
    the seconds for which members may leave.
    """
    found = _records(backend, subscriptions)
    topics = backend.catalog.topics()
    for record in found:
        if record.topic in topics and topics[record.topic].options.causal:
            raise FailedPrecondition(
                f"subscription {record.name!r}: the positions of a topic with causal order can't be moved"
            )
    places = {place: record.name for record in found for place in _places(backend, record)}
    asked = dict.fromkeys(places) if wanted is None else wanted
    unknown = [f"{place.topic}-{place.partition}" for place in asked if place not in places]
    if unknown:
        raise InvalidArgument(
            f"there is no partition {', '.join(unknown)}; the topics are "
            f"{', '.join(sorted({place.topic for place in places})) or 'none'}"
        )
    ranges = backend.admin.log_ranges(list(asked))
    new = {
        place: ranges[place][0] if to is None else min(max(to, ranges[place][0]), ranges[place][1])
        for place, to in asked.items()
    }
    for record in found:
        mine = {place: to for place, to in new.items() if places[place] == record.name}
        if mine:
            _set(backend, record.name, mine, patience)


def _set(backend: Backend, group: str, positions: Mapping[TopicPartition, int], patience: float) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            backend.admin.set_positions(group, positions)
        except FailedPrecondition:
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL)
        else:
            return


def _records(backend: Backend, subscriptions: Iterable[str]) -> list[SubscriptionRecord]:
    records = backend.catalog.subscriptions()
    found = [records[name] for name in subscriptions if name in records]
    return [record for record in found if record.state == "ready" and not record.detached]


def _positions(backend: Backend, record: SubscriptionRecord) -> list[Position]:
    places = _places(backend, record)
    stored = backend.admin.group_positions(record.name, list(places))
    ends = backend.admin.high_watermarks(list(places))
    found = []
    for place, begun in places.items():
        committed = stored.get(place)
        offset = begun if committed is None or committed.offset is None else committed.offset
        found.append(Position(*place, offset, max(0, ends[place] - offset)))
    return found


def _places(backend: Backend, record: SubscriptionRecord) -> dict[TopicPartition, int]:
    """Returns the partitions of a subscription's topic and its lanes, with the position at which each begins."""
    layout = Layout(record, backend.catalog.topics().get(record.topic))
    return {
        TopicPartition(view.topic, number): view.positions.get(number, 0)
        for view in layout.views.values()
        for number in range(view.partitions)
    }
