"""Reads from Kafka which keys of a subscription are blocked and why, whatever process receives the subscription.

Messages that wait for redelivery lie in the retry topic above its committed position, except those that the commit's
metadata or checkpoint (`checkpoint_reader.py`) records as finished. The metadata also notes the messages that are in
flight. So the two topics and the group's positions show the state at the last commit, some 0.2 s ago.

Rules
1. Positions are read before ends, so that a message that moves to the end of its retry partition meanwhile is seen at
   one place at least; if it is seen at both, the later one counts.
2. A key's state is that of its first message, in order of origin; `behind` counts the messages after it in the retry
   topic. Messages that wait behind it in the home topic aren't read.
3. A message without a key has a state of its own.
4. The notes serve the next owner after a crash; they don't list the leases exactly: the commit after a lease began
   notes it. When no process receives, they name the messages that were in flight when the last owner ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Literal

from kafka_pubsub.client.dead_letters.model import moment
from kafka_pubsub.client.dead_letters.reading import AT_ONCE, read_all
from kafka_pubsub.client.retry.checkpoint_reader import finished_runs, gaps, map_of, offsets_of
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.core.commit import notes
from kafka_pubsub.core.retry import record as retry_record
from kafka_pubsub.core.retry.record import FOREVER, NO_MESSAGES, Broken, RetryRecord, Why
from kafka_pubsub.errors import NotFound
from kafka_pubsub.model import Committed, StoredRecord, TopicPartition, decode_ordering_key
from kafka_pubsub.ports import Backend, RecordFetch

__all__ = ["KeyState", "WaitingRoom", "key_states", "noted", "reason_of"]

_NOWHERE = Committed(None, "")

_REASONS = {
    Why.NACKED: "nacked",
    Why.DELAYED: "nacked with a delay",
    Why.EXPIRED: "its deadline passed",
    Why.BACKLOG: "waits behind an earlier message of its key",
    Why.CRASHED: "its process died",
    Why.EXHAUSTED: "its attempts are used up",
    Why.REPLAYED: "replayed or released",
    Why.UNBURIED: "its attempts are used up, its dead letter isn't written yet",
}


def reason_of(why: Why) -> str:
    """Returns in words why a message waits."""
    return _REASONS.get(why, why.name.lower())


@dataclass(frozen=True)
class KeyState:
    """The state of a key that the message at `offset` of `partition` of `topic` blocks.

    `state`: `parked` until you release it, `waiting` for `next_due`, `leased` to a callback, or `unreadable`
    (then `offset` is -1). `since`: when the message first failed; None: it didn't. `behind`: the number of messages of
    the key that wait after it in the retry topic. `topic`: the Kafka topic, that of the lane if the topic has lanes.
    """

    key: bytes | None
    partition: int
    offset: int
    state: Literal["parked", "waiting", "leased", "unreadable"]
    reason: str
    attempt: int
    crashes: int = 0
    since: datetime | None = None
    next_due: datetime | None = None
    behind: int = 0
    error: str = ""
    topic: str = ""

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None if there is none."""
        return decode_ordering_key(self.key)


class WaitingRoom:
    """A snapshot of the messages that wait in a subscription's retry topic."""

    def __init__(self, backend: Backend, record: SubscriptionRecord, fetch: RecordFetch) -> None:
        self._record = record
        self._fetch = fetch
        admin = backend.admin
        self.home: Mapping[int, Committed] = admin.group_offsets(record.name, record.topic)
        #: Positions in the retry topic; empty if the subscription has none.
        self.positions: Mapping[int, Committed] = {}
        self._ends: Mapping[int, int] = {}
        if record.retry_topic is not None:
            try:
                self.positions = admin.group_offsets(record.name, record.retry_topic.name)
                self._ends = admin.last_stable_offsets(record.retry_topic.name)
            except NotFound:
                pass  # the streams report that it is gone

    def numbers(self) -> list[int]:
        """Returns the numbers of all partitions."""
        return list(range(self._record.partitions))

    def unfinished(self, number: int) -> Iterator[StoredRecord]:
        """Yields the unfinished records of a retry partition, in the order of the log."""
        retry = self._record.retry_topic
        if retry is None:
            return
        place, end = TopicPartition(retry.name, number), self._ends.get(number, 0)
        stored = self.positions.get(number, _NOWHERE)
        at = retry.positions.get(number, 0) if stored.offset is None else stored.offset
        if at >= end:
            return
        # A page spans several gaps: there may be tens of thousands of finished runs with one message between two.
        wanted = offsets_of(gaps(at, finished_runs(self._fetch, place, stored, end), end))
        while page := list(islice(wanted, AT_ONCE)):
            yield from read_all(self._fetch, place, page)

    def read(self, record: StoredRecord, number: int) -> RetryRecord | Broken:
        """Decodes the message in a record of a retry partition."""
        return retry_record.read(record, self._record.topic, self._record.topic_id, number)

    def messages(self, number: int) -> Iterator[RetryRecord]:
        """Yields the messages among the unfinished records of a retry partition."""
        for record in self.unfinished(number):
            found = self.read(record, number)
            if isinstance(found, RetryRecord) and found.info.why not in NO_MESSAGES:
                yield found


def key_states(
    backend: Backend,
    record: SubscriptionRecord,
    numbers: Sequence[int] | None = None,
    limit: int | None = None,
) -> list[KeyState]:
    """Returns the state of every blocked key in these partitions (None: all), by partition and origin.

    Reads up to `limit` unfinished records of each retry partition (None: all).
    """
    numbers = range(record.partitions) if numbers is None else numbers
    if not numbers:
        return []
    with closing(backend.record_fetch()) as fetch:
        room = WaitingRoom(backend, record, fetch)
        alive = backend.admin.group_members(record.name) > 0
        states: list[KeyState] = []
        for number in numbers:
            waiting = _Waiting(room, record, number, alive)
            waiting.read(limit)
            found = [*waiting.states(), *_leased(room, record, fetch, number, alive, waiting.leased_keys)]
            states += (
                replace(each, topic=record.topic) for each in sorted(found, key=lambda each: each.offset)
            )
        return states


def noted(stored: Committed | None) -> Sequence[int]:
    """Returns the offsets of the messages that were in flight at a commit."""
    found = map_of(stored)
    return () if found is None else notes.offsets(found.notes)


class _Waiting:
    """The messages that wait in one retry partition, by key."""

    def __init__(self, room: WaitingRoom, record: SubscriptionRecord, number: int, alive: bool) -> None:
        self._room = room
        self._ordered = record.options.message_ordering
        self._number = number
        self._alive = alive
        self._noted = frozenset(noted(room.positions.get(number)))
        self._heads: dict[bytes, RetryRecord] = {}
        self._origins: dict[bytes, set[int]] = {}
        self._loose: dict[int, RetryRecord] = {}
        self._broken: list[KeyState] = []
        #: Keys of which a message from the retry topic is in flight.
        self.leased_keys: set[bytes] = set()

    def read(self, limit: int | None) -> None:
        """Reads up to `limit` unfinished records of the partition."""
        for count, record in enumerate(self._room.unfinished(self._number)):
            if limit is not None and count >= limit:
                return
            found = self._room.read(record, self._number)
            if isinstance(found, Broken):
                reason = f"offset {record.offset()} of the retry partition: {found.reason}"
                self._broken.append(KeyState(record.key(), self._number, -1, "unreadable", reason, 0))
            elif found.info.why not in NO_MESSAGES:
                self._take(found)

    def _take(self, message: RetryRecord) -> None:
        key = message.key()
        if key is None or not self._ordered:
            self._loose[message.offset()] = message
            return
        self._origins.setdefault(key, set()).add(message.offset())
        head = self._heads.get(key)
        if head is None or message.offset() <= head.offset():
            self._heads[key] = message

    def states(self) -> Iterator[KeyState]:
        """Yields a state for each key, for each message without a key, and for each unreadable record."""
        yield from self._broken
        for key, head in self._heads.items():
            if head.retry_offset in self._noted:
                self.leased_keys.add(key)
            yield self._state(head, len(self._origins[key]) - 1)
        for message in self._loose.values():
            yield self._state(message, 0)

    def _state(self, message: RetryRecord, behind: int) -> KeyState:
        info = message.info
        state: Literal["parked", "waiting", "leased"] = "waiting"
        reason, due = reason_of(info.why), moment(info.due) if info.due else None
        if message.retry_offset in self._noted:
            state, reason, due = "leased", _with_callback(self._alive), None
        elif info.due >= FOREVER:
            state, due = "parked", None
        return KeyState(
            message.key(),
            self._number,
            info.origin,
            state,
            reason,
            info.attempt,
            info.crashes,
            moment(info.failed) if info.failed else None,
            due,
            behind,
            info.error,
        )


def _leased(
    room: WaitingRoom,
    record: SubscriptionRecord,
    fetch: RecordFetch,
    number: int,
    alive: bool,
    known: set[bytes],
) -> Iterator[KeyState]:
    """Yields the states of the keys of which a message from the home topic is in flight."""
    offsets = noted(room.home.get(number))
    if not offsets:
        return
    try:
        found = list(read_all(fetch, TopicPartition(record.topic, number), sorted(offsets)))
    except NotFound:
        return
    for each in found:
        key = each.key()
        if key is None or key not in known:
            yield KeyState(key, number, each.offset() or 0, "leased", _with_callback(alive), 1)


def _with_callback(alive: bool) -> str:
    return "with its callback" if alive else "was with its callback when its process ended"
