"""Which keys of a subscription are held up, and by what: read from Kafka alone, for consumers in any process.

Theory. Messages that wait for a redelivery lie in the retry topic above its committed position, less those that the
ack map of the commit calls finished, or the checkpoint that it may name (`checkpoint_reader.py`). Messages with a
callback are noted in the metadata of the last commits. So the two topics and the group's positions tell it all,
0.2 s later.

Rules
1. Positions are read before ends, so that a message which moves to the tail is seen at one of its places; if it is
   seen at both, the later one counts.
2. A key's state is that of its first message, in order of origin; `behind` counts the messages after it in the retry
   topic. Messages that wait behind it in the home topic aren't read.
3. A message without a key has a state of its own.
4. Notes are what the next owner needs after a crash, not a register of leases: a lease is noted by the commit after it
   began. When no process receives, they name the messages that were under way when the last owner died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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

__all__ = ["KeyState", "WaitingRoom", "key_states"]

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


@dataclass(frozen=True)
class KeyState:
    """A key that is held up, by the message at `offset` of `partition` in the home topic.

    `state`: `parked` until you release it, `waiting` for `next_due`, `leased` to a callback, or `unreadable`
    (then `offset` is -1). `since`: when the message failed first, if it did. `behind`: messages of the key that wait
    in the retry topic after it.
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

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None when there is none."""
        return decode_ordering_key(self.key)


class WaitingRoom:
    """The messages that wait in a subscription's retry topic, at one moment."""

    def __init__(self, backend: Backend, record: SubscriptionRecord, fetch: RecordFetch) -> None:
        self._record = record
        self._fetch = fetch
        admin = backend.admin
        self.home: Mapping[int, Committed] = admin.group_offsets(record.name, record.topic)
        #: Positions in the retry topic; empty if there is none.
        self.positions: Mapping[int, Committed] = {}
        self._ends: Mapping[int, int] = {}
        if record.retry_topic is not None:
            try:
                self.positions = admin.group_offsets(record.name, record.retry_topic.name)
                self._ends = admin.last_stable_offsets(record.retry_topic.name)
            except NotFound:
                pass  # the streams report that it is gone

    def numbers(self) -> list[int]:
        """All partitions."""
        return list(range(self._record.partitions))

    def unfinished(self, number: int) -> Iterator[StoredRecord]:
        """The records of a retry partition that wait, in the order of the log."""
        retry = self._record.retry_topic
        if retry is None:
            return
        place, end = TopicPartition(retry.name, number), self._ends.get(number, 0)
        stored = self.positions.get(number, _NOWHERE)
        at = retry.positions.get(number, 0) if stored.offset is None else stored.offset
        if at >= end:
            return
        # Pages span gaps: there may be tens of thousands of runs, with a message between two of them.
        wanted = offsets_of(gaps(at, finished_runs(self._fetch, place, stored, end), end))
        while page := list(islice(wanted, AT_ONCE)):
            yield from read_all(self._fetch, place, page)

    def read(self, record: StoredRecord, number: int) -> RetryRecord | Broken:
        """The message in such a record."""
        return retry_record.read(record, self._record.topic, self._record.topic_id, number)

    def messages(self, number: int) -> Iterator[RetryRecord]:
        """The messages among them."""
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
    """Every key that is held up in these partitions (None: all), by partition and origin.

    Of a partition it stops reading when it has seen `limit` messages.
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
            states += sorted(found, key=lambda each: each.offset)
        return states


def _noted(stored: Committed | None) -> Sequence[int]:
    found = map_of(stored)
    return () if found is None else notes.offsets(found.notes)


class _Waiting:
    """The messages that wait in one retry partition, by key."""

    def __init__(self, room: WaitingRoom, record: SubscriptionRecord, number: int, alive: bool) -> None:
        self._room = room
        self._ordered = record.options.message_ordering
        self._number = number
        self._alive = alive
        self._noted = frozenset(_noted(room.positions.get(number)))
        self._heads: dict[bytes, RetryRecord] = {}
        self._origins: dict[bytes, set[int]] = {}
        self._loose: dict[int, RetryRecord] = {}
        self._broken: list[KeyState] = []
        #: Keys of which a callback holds the message from the retry topic.
        self.leased_keys: set[bytes] = set()

    def read(self, limit: int | None) -> None:
        """Reads the partition."""
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
        """One for each key, and for each message without."""
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
        reason, due = _REASONS.get(info.why, info.why.name.lower()), moment(info.due) if info.due else None
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
    """Those of which a callback holds a message from the home topic."""
    offsets = _noted(room.home.get(number))
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
