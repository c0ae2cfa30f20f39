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

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Literal

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.clocks import moment
from kafka_pubsub.log.ports import Backend, RecordFetch
from kafka_pubsub.model import (
    Committed,
    StoredRecord,
    TopicPartition,
    decode_ordering_key,
    message_id_of,
)
from kafka_pubsub.subscribe.dead_letters.scan import AT_ONCE, read_all
from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats import record as retry_record
from kafka_pubsub.subscribe.formats.record import FOREVER, NO_MESSAGES, Broken, RetryRecord, Why
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import finished_runs, gaps, map_of, offsets_of

__all__ = [
    "NOWHERE",
    "KeyState",
    "RetryContents",
    "Waiting",
    "key_states",
    "noted",
    "reason_of",
    "retry_position",
]

#: The position in a partition of which the group has none.
NOWHERE = Committed(None, "")

_REASONS = {
    Why.NACKED: "nacked",
    Why.DELAYED: "nacked with a delay",
    Why.EXPIRED: "its deadline passed",
    Why.BACKLOG: "waits behind an earlier message of its key",
    Why.CRASHED: "its process died",
    Why.EXHAUSTED: "its attempts are used up",
    Why.REPLAYED: "replayed or released",
    Why.UNBURIED: "its attempts are used up, its dead letter isn't written yet",
    Why.REJECTED: "its callback gave it up",
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
    `message_id`: the id of the message that blocks it; "" if it can't be read.
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
    message_id: str = ""

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None if there is none."""
        return decode_ordering_key(self.key)


def retry_position(record: SubscriptionRecord, number: int, stored: Committed | None) -> int:
    """Returns the position in a retry partition; if the broker has forgotten it, the catalog's copy."""
    if stored is not None and stored.offset is not None:
        return stored.offset
    topic = record.retry_topic
    return 0 if topic is None else topic.positions.get(number, 0)


class RetryContents:
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
        at = retry_position(self._record, number, self.positions.get(number))
        if at >= end:
            return
        stored = self.positions.get(number, NOWHERE)
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


def key_states(backend: Backend, record: SubscriptionRecord) -> list[KeyState]:
    """Returns the state of every blocked key, by partition and origin."""
    with closing(backend.record_fetch()) as fetch:
        room = RetryContents(backend, record, fetch)
        alive = backend.admin.group_members(record.name) > 0
        states: list[KeyState] = []
        for number in room.numbers():
            waiting = Waiting(record, number, room.positions.get(number), alive=alive)
            for each in room.unfinished(number):
                waiting.take(each)
            states += waiting.states(_started(record, fetch, number, room.home.get(number)))
        return states


def noted(stored: Committed | None) -> Sequence[int]:
    """Returns the offsets of the messages that were in flight at a commit."""
    found = map_of(stored)
    return () if found is None else notes.offsets(found.notes)


def _started(
    record: SubscriptionRecord, fetch: RecordFetch, number: int, stored: Committed | None
) -> Sequence[StoredRecord]:
    """Returns the messages of a home partition that were in flight at a commit."""
    try:
        return list(read_all(fetch, TopicPartition(record.topic, number), sorted(noted(stored))))
    except NotFound:
        return ()


class Waiting:
    """The messages that wait in one retry partition, by key. `stored`: its commit; `alive`: a process receives."""

    def __init__(
        self, record: SubscriptionRecord, number: int, stored: Committed | None, *, alive: bool
    ) -> None:
        self._record = record
        self._ordered = record.options.message_ordering
        self._number = number
        self._alive = alive
        self._noted = frozenset(noted(stored))
        self._heads: dict[bytes, RetryRecord] = {}
        self._origins: dict[bytes, set[int]] = {}
        self._loose: dict[int, RetryRecord] = {}
        self._broken: list[KeyState] = []
        # Keys of which a message from the retry topic is in flight.
        self._leased: set[bytes] = set()
        #: The origins of the messages that are parked until they are released, and when each was published.
        self.parked: dict[int, int] = {}
        #: When the first of all was published, in milliseconds; None: no message waits.
        self.oldest: int | None = None

    def __len__(self) -> int:
        return len(self._broken) + len(self._loose) + sum(map(len, self._origins.values()))

    @property
    def keys(self) -> Set[bytes]:
        """The keys of an ordered subscription that have a message here: their later messages wait."""
        return self._heads.keys()

    def origins(self) -> Iterator[int]:
        """Yields the offsets at which the messages were published."""
        yield from self._loose
        yield from chain.from_iterable(self._origins.values())

    def take(self, record: StoredRecord) -> None:
        """Takes an unfinished record; later ones of a message replace earlier ones."""
        found = retry_record.read(record, self._record.topic, self._record.topic_id, self._number)
        if isinstance(found, Broken):
            reason = f"offset {record.offset()} of the retry partition: {found.reason}"
            self._broken.append(KeyState(record.key(), self._number, -1, "unreadable", reason, 0))
        elif found.info.why not in NO_MESSAGES:
            self._take(found)

    def _take(self, message: RetryRecord) -> None:
        origin, published = message.offset(), message.timestamp()[1]
        self.oldest = published if self.oldest is None else min(published, self.oldest)
        if message.info.due >= FOREVER:
            self.parked[origin] = published
        else:
            self.parked.pop(origin, None)
        key = message.key()
        if key is None or not self._ordered:
            self._loose[origin] = message
            return
        self._origins.setdefault(key, set()).add(origin)
        head = self._heads.get(key)
        if head is None or origin <= head.offset():
            self._heads[key] = message

    @property
    def first_due(self) -> int | None:
        """When the first of those that wait for a time is due, in milliseconds; None: none does."""
        firsts = chain(self._heads.values(), self._loose.values())
        dues = (each.info.due for each in firsts if each.retry_offset not in self._noted)
        return min((due for due in dues if 0 < due < FOREVER), default=None)

    def states(self, started: Iterable[StoredRecord]) -> list[KeyState]:
        """Returns the states by offset; `started`: the messages of the home partition that are in flight."""
        found = [*self._broken, *self._waiting(), *self._at_home(started)]
        return [
            replace(each, topic=self._record.topic) for each in sorted(found, key=lambda each: each.offset)
        ]

    def _waiting(self) -> Iterator[KeyState]:
        """Yields a state for each key, and for each message without a key."""
        for key, head in self._heads.items():
            if head.retry_offset in self._noted:
                self._leased.add(key)
            yield self._state(head, len(self._origins[key]) - 1)
        for message in self._loose.values():
            yield self._state(message, 0)

    def _at_home(self, started: Iterable[StoredRecord]) -> Iterator[KeyState]:
        for each in started:
            key = each.key()
            if key is None or key not in self._leased:
                offset, reason = each.offset() or 0, _with_callback(self._alive)
                yield KeyState(key, self._number, offset, "leased", reason, 1, message_id=message_id_of(each))

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
            message_id=message_id_of(message),
        )


def _with_callback(alive: bool) -> str:
    return "with its callback" if alive else "was with its callback when its process ended"
