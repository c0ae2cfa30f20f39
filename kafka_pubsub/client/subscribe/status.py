"""The state of a subscription as this process sees it: its lag, messages in flight, and blocked keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice

from kafka_pubsub.client.assignment.layout import Layout
from kafka_pubsub.client.dead_letters.key_states import KeyState, key_states, reason_of
from kafka_pubsub.client.subscribe.runner import StreamRunner
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.delivery.leases import LeaseState
from kafka_pubsub.core.lanes.numbers import index_of, partition_of
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.retry.key_line import NEVER
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.ports import Backend

__all__ = ["BlockedKey", "LaneState", "SubscriptionState", "state_of"]

#: The most keys listed in a state: more than a person reads.
LISTED = 1000
#: Offsets in which the first unfinished message of a partition is looked for: markers lie between.
LOOK, SECONDS = 100, 5.0


@dataclass(frozen=True)
class BlockedKey:
    """A key whose later messages wait, and the reason. `topic`: its Kafka topic, that of the lane if it has lanes."""

    key: bytes
    partition: int
    offset: int
    reason: str
    waiting: int
    topic: str = ""


@dataclass(frozen=True)
class LaneState:
    """What waits in one lane: `topic` is its Kafka topic, `oldest` when the first message of those came in.

    `oldest` is None if nothing waits there. Messages that wait for a redelivery don't count.
    """

    topic: str
    priority: int
    durable: bool
    lag: int
    oldest: datetime | None


@dataclass(frozen=True)
class SubscriptionState:
    """`lag` counts messages that aren't known to be finished, by the committed positions of all members.

    `in_flight`, `buffered` and `blocked` are those of this process's streams only. `lanes` has a state for each lane
    in use, the highest priority first; it is empty if the topic has none.
    """

    subscription: str
    topic: str
    members: int
    lag: int
    lag_by_partition: dict[int, int]
    in_flight: int = 0
    buffered: int = 0
    blocked: tuple[BlockedKey, ...] = field(default=())
    lanes: tuple[LaneState, ...] = field(default=())


def state_of(
    backend: Backend, record: SubscriptionRecord, engines: Sequence[StreamRunner]
) -> SubscriptionState:
    """Reads the state from the log, and asks the streams of this process.

    Keys that wait in partitions of other processes are read from the retry topic.
    """
    layout = Layout(record, backend.catalog.topics().get(record.topic))
    gaps = {index: _unfinished(backend, view) for index, view in layout.views.items()}
    lag = dict.fromkeys(sorted(gaps[0]), 0)
    for found in gaps.values():
        for number, (start, end) in found.items():
            lag[number] = lag.get(number, 0) + end - start
    blocked: list[BlockedKey] = []
    own: set[int] = set()
    in_flight = buffered = 0
    for engine in engines:
        try:
            here = engine.ask(partial(_blocked_in, engine))
        except FailedPrecondition:
            continue  # it has ended meanwhile
        in_flight += engine.coordinator.in_flight()
        buffered += sum(held.bytes for held in engine.coordinator.partitions.held().values())
        own.update(engine.coordinator.partitions.owned)
        places = engine.rebalances.layout
        for each in here:
            topic, number = places.main(each.partition)
            blocked.append(replace(each, partition=number, topic=topic))
    for index, view in layout.views.items():
        mine = {partition_of(number) for number in own if index_of(number) == index}
        elsewhere = [number for number in range(record.partitions) if number not in mine]
        states = key_states(backend, view, elsewhere, LISTED)
        blocked += [_from_log(state, view.topic) for state in states]
    return SubscriptionState(
        record.name,
        record.topic,
        backend.admin.group_members(record.name),
        sum(lag.values()),
        lag,
        in_flight,
        buffered,
        tuple(blocked[:LISTED]),
        _lanes(backend, layout, gaps) if layout.laned else (),
    )


def _unfinished(backend: Backend, record: SubscriptionRecord) -> Mapping[int, tuple[int, int]]:
    """Returns the position and the end of each partition of a topic or lane."""
    committed = backend.admin.group_offsets(record.name, record.topic)
    found = {}
    for number, end in backend.admin.last_stable_offsets(record.topic).items():
        stored = committed[number].offset if number in committed else None
        position = record.positions.get(number, 0) if stored is None else stored
        found[number] = (min(position, end), end)
    return found


def _lanes(
    backend: Backend, layout: Layout, gaps: Mapping[int, Mapping[int, tuple[int, int]]]
) -> tuple[LaneState, ...]:
    """Returns the states of all lanes; reads the first unfinished message of each partition."""
    wanted = {
        TopicPartition(layout.views[index].topic, number): range(start, min(end, start + LOOK))
        for index, found in gaps.items()
        for number, (start, end) in found.items()
        if start < end
    }
    oldest: dict[str, int] = {}
    if wanted:
        with closing(backend.record_fetch()) as fetch:
            for place, fetched in fetch.fetch_all(wanted, 1, SECONDS).items():
                for record in fetched.records[:1]:
                    came = record.timestamp()[1]
                    oldest[place.topic] = min(came, oldest.get(place.topic, came))
    states = []
    for index, lane in layout.lanes.items():
        topic, lag = layout.views[index].topic, sum(end - start for start, end in gaps[index].values())
        came_in = oldest.get(topic)
        time = None if came_in is None else datetime.fromtimestamp(came_in / 1000, UTC)
        states.append(LaneState(topic, lane.priority, lane.durable, lag, time))
    return tuple(sorted(states, key=lambda each: (-each.priority, not each.durable)))


def _blocked_in(engine: StreamRunner) -> list[BlockedKey]:
    """Returns at most `LISTED` keys: a million may be parked, and the stream stands still meanwhile."""
    return list(islice(_blocked(engine.coordinator.partitions.owned.values()), LISTED))


def _blocked(partitions: Iterable[Partition]) -> Iterable[BlockedKey]:
    """Yields blocked keys with the numbers of their partitions."""
    reasons = {
        LeaseState.RUNNING: "with its callback",
        LeaseState.KEPT: "leased, not acked yet",
        LeaseState.EXPIRED: "its deadline has passed, its callback still runs",
    }
    for partition in partitions:
        yield from _parked(partition)
        queues = partition.queues.queues
        for lease in partition.leases.active:
            if lease.key is not None:
                waiting = len(queues.get(lease.key, ())) + len(lease.records) - lease.done - 1
                offset = lease.records[lease.done].offset()
                yield BlockedKey(lease.key, partition.number, offset, reasons[lease.state], waiting)


def _from_log(state: KeyState, topic: str) -> BlockedKey:
    why = "parked until it is released" if state.state == "parked" else f"{state.state}: {state.reason}"
    return BlockedKey(
        state.key or b"",
        state.partition,
        state.offset,
        f"{why}, attempt {state.attempt}",
        state.behind,
        topic,
    )


def _parked(partition: Partition) -> Iterable[BlockedKey]:
    """Yields the keys that wait in the retry topic."""
    lines = partition.retry_partition.retries.parking.lines
    for key in lines:
        entry = lines.peek(key)
        if entry is None:
            yield BlockedKey(key, partition.number, -1, "on its way to the retry topic", 0)
            continue
        why = "parked until it is released" if entry.due == NEVER else f"waiting: {reason_of(entry.why)}"
        waiting = lines.count(key) - 1 + len(partition.queues.queues.get(key, ()))
        yield BlockedKey(key, partition.number, entry.origin, f"{why}, attempt {entry.attempt}", waiting)
