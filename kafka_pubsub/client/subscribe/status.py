"""The state of a subscription as this process sees it: its lag, messages in flight, and blocked keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from kafka_pubsub.client.dead_letters.key_states import KeyState, key_states
from kafka_pubsub.client.subscribe.runner import StreamRunner
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.delivery.leases import LeaseState
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.retry.key_line import NEVER
from kafka_pubsub.core.retry.record import Why
from kafka_pubsub.ports import Backend

__all__ = ["BlockedKey", "SubscriptionState", "state_of"]

#: The most keys listed in a state: more than a person reads.
LISTED = 1000


@dataclass(frozen=True)
class BlockedKey:
    """A key whose later messages wait, and the reason."""

    key: bytes
    partition: int
    offset: int
    reason: str
    waiting: int


@dataclass(frozen=True)
class SubscriptionState:
    """`lag` counts messages that aren't known to be finished, by the committed positions of all members.

    `in_flight`, `buffered` and `blocked` are those of this process's streams only.
    """

    subscription: str
    topic: str
    members: int
    lag: int
    lag_by_partition: dict[int, int]
    in_flight: int = 0
    buffered: int = 0
    blocked: tuple[BlockedKey, ...] = field(default=())


def state_of(
    backend: Backend, record: SubscriptionRecord, engines: Sequence[StreamRunner]
) -> SubscriptionState:
    """Reads the state from the log, and asks the streams of this process.

    Keys that wait in partitions of other processes are read from the retry topic.
    """
    committed = backend.admin.group_offsets(record.name, record.topic)
    ends = backend.admin.last_stable_offsets(record.topic)
    lag = {}
    for number, end in sorted(ends.items()):
        stored = committed[number].offset if number in committed else None
        lag[number] = max(0, end - (record.positions.get(number, 0) if stored is None else stored))
    blocked: list[BlockedKey] = []
    own: set[int] = set()
    in_flight = buffered = 0
    for engine in engines:
        in_flight += engine.coordinator.in_flight()
        buffered += sum(held.bytes for held in engine.coordinator.partitions.held().values())
        own.update(engine.coordinator.partitions.owned)
        blocked += engine.ask(partial(_blocked_in, engine))
    elsewhere = [number for number in range(record.partitions) if number not in own]
    blocked += map(_from_log, key_states(backend, record, elsewhere, LISTED))
    return SubscriptionState(
        record.name,
        record.topic,
        backend.admin.group_members(record.name),
        sum(lag.values()),
        lag,
        in_flight,
        buffered,
        tuple(blocked[:LISTED]),
    )


def _blocked_in(engine: StreamRunner) -> list[BlockedKey]:
    """Returns at most `LISTED` keys: a million may be parked, and the stream stands still meanwhile."""
    return list(islice(_blocked(engine.coordinator.partitions.owned.values()), LISTED))


def _blocked(partitions: Iterable[Partition]) -> Iterable[BlockedKey]:
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


def _from_log(state: KeyState) -> BlockedKey:
    why = "parked until it is released" if state.state == "parked" else f"{state.state}: {state.reason}"
    return BlockedKey(
        state.key or b"", state.partition, state.offset, f"{why}, attempt {state.attempt}", state.behind
    )


def _parked(partition: Partition) -> Iterable[BlockedKey]:
    """Yields the keys that wait in the retry topic."""
    lines = partition.retry_partition.retries.parking.lines
    for key in lines:
        entry = lines.peek(key)
        if entry is None:
            yield BlockedKey(key, partition.number, -1, "on its way to the retry topic", 0)
            continue
        why = "parked until it is released" if entry.due == NEVER else f"parked: {_WHY[entry.why]}"
        waiting = lines.count(key) - 1 + len(partition.queues.queues.get(key, ()))
        yield BlockedKey(key, partition.number, entry.origin, f"{why}, attempt {entry.attempt}", waiting)


_WHY = {
    Why.NACKED: "nacked",
    Why.EXPIRED: "its deadline has passed",
    Why.BACKLOG: "behind an earlier message of its key",
    Why.CRASHED: "its process died",
    Why.EXHAUSTED: "its attempts are used up",
    Why.REPLAYED: "replayed",
    Why.RELEASE: "released",
    Why.DROP: "dropped",
    Why.UNBURIED: "its attempts are used up, its dead letter isn't written yet",
}
