"""The conformance tests' view of a backend, whichever it is: names of their own, writers, and members.

A single thread drives all members: `Member.step` is a short `read`, and `until` steps several members in turn, as
processes beside each other would run.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Backend, LogReader, LogWriter, RecordFetch, Transactions
from kafka_pubsub.model import Committed, Header, Membership, NewRecord, StoredRecord, TopicPartition

__all__ = ["MEGABYTE", "Delivery", "LeaveOpen", "Member", "OpenTransaction", "World", "flush", "until"]

#: Seconds that anything may take before a test gives up; only a bound against hanging.
PATIENCE = 45.0

MEGABYTE = 1_048_576

Delivery = tuple[object, StoredRecord]


class OpenTransaction(Protocol):
    """A transaction that nobody ends, unless told to."""

    def commit(self) -> None: ...


class LeaveOpen(Protocol):
    """Begins a transaction under an id, sends everything, and stops before the commit."""

    def __call__(
        self,
        transactional_id: str,
        records: Sequence[NewRecord],
        positions: Mapping[TopicPartition, Committed],
        membership: Membership,
    ) -> OpenTransaction: ...


class Recorder:
    """A listener that keeps its calls and starts partitions where `starts` says."""

    def __init__(self, starts: Callable[[TopicPartition], int | None]) -> None:
        self.starts = starts
        self.owned: set[TopicPartition] = set()
        self.events: list[tuple[str, frozenset[TopicPartition]]] = []
        self.failures: list[tuple[TopicPartition | None, PubSubError, bool]] = []
        self.threads: set[int] = set()
        self.on_revoked: Callable[[Sequence[TopicPartition]], None] = lambda partitions: None
        self.on_assigned: Callable[[Sequence[TopicPartition]], None] = lambda partitions: None

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._note("assigned", partitions)
        self.owned.update(partitions)
        self.on_assigned(partitions)
        starts = {partition: self.starts(partition) for partition in partitions}
        return {partition: offset for partition, offset in starts.items() if offset is not None}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("revoked", partitions)
        self.owned.difference_update(partitions)
        self.on_revoked(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions)
        self.owned.difference_update(partitions)

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        self.threads.add(threading.get_ident())
        self.failures.append((partition, error, fatal))

    def heard(self, event: str) -> list[frozenset[TopicPartition]]:
        """The partitions of each event of that name that named any."""
        return [partitions for name, partitions in self.events if name == event and partitions]

    def _note(self, event: str, partitions: Sequence[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        self.events.append((event, frozenset(partitions)))


class Member:
    """A reader with its listener and its records."""

    def __init__(self, reader: LogReader, listener: Recorder) -> None:
        self.reader = reader
        self.listener = listener
        self.records: list[StoredRecord] = []

    def step(self, timeout: float = 0.05) -> None:
        """A short read."""
        self.records.extend(self.reader.read(100, timeout))

    @property
    def owned(self) -> set[TopicPartition]:
        return self.listener.owned

    def values(self) -> list[bytes | None]:
        """The records so far."""
        return [record.value() for record in self.records]


def until(condition: Callable[[], object], *members: Member, patience: float = PATIENCE) -> None:
    """Steps the members in turn until the condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience} s: {[m.listener.events for m in members]}"
        for member in members:
            member.step()


def flush(writer: LogWriter) -> None:
    """Waits until everything was reported; a single call may return before with some reports left."""
    deadline = time.monotonic() + PATIENCE
    while left := writer.flush(deadline - time.monotonic()):
        assert time.monotonic() < deadline, f"{left} records weren't reported within {PATIENCE} s"


class World:
    """A backend under test, and how to make more over the same cluster, as other processes have.

    `beside()` makes an ordinary backend; members of an `impatient()` backend are given up soon when they are silent.
    """

    def __init__(
        self,
        backend: Backend,
        beside: Callable[[], Backend],
        impatient: Callable[[], Backend],
        leave_open: LeaveOpen,
    ) -> None:
        self.backend = backend
        self.beside = beside
        self.impatient = impatient
        self.leave_open = leave_open
        self._opened: list[LogReader | LogWriter | Transactions | RecordFetch] = []

    def name(self, prefix: str) -> str:
        """A name that no other test has."""
        return f"{prefix}-{uuid.uuid4().hex[:12]}"

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic's name."""
        name = self.name("contract")
        self.backend.admin.create_topic(name, partitions, None, config or {})
        return name

    def writer(self, backend: Backend | None = None, *, durable: bool = True) -> LogWriter:
        """A writer, closed after the test."""
        writer = (backend or self.backend).writer(Batching(), MEGABYTE, durable)
        self._opened.append(writer)
        return writer

    def write(
        self,
        topic: str,
        values: Sequence[bytes | None],
        key: bytes | None = None,
        headers: Sequence[Header] | None = None,
    ) -> list[Delivery]:
        """Writes and waits; the reports in the order in which they came."""
        writer = self.writer()
        reports: list[Delivery] = []
        for value in values:
            writer.append(topic, value, key, headers, lambda error, record: reports.append((error, record)))
        flush(writer)
        return reports

    def reader(self, group: str, backend: Backend | None = None, *, spread: bool = False) -> LogReader:
        """An unsubscribed reader, closed after the test."""
        reader = (backend or self.backend).reader(group, self.name("member"), spread=spread)
        self._opened.append(reader)
        return reader

    def member(
        self,
        group: str,
        *topics: str,
        starts: Callable[[TopicPartition], int | None] = lambda partition: 0,
        backend: Backend | None = None,
        spread: bool = False,
    ) -> Member:
        """A subscribed member that reads from the beginning unless told otherwise."""
        listener = Recorder(starts)
        member = Member(self.reader(group, backend, spread=spread), listener)
        member.reader.subscribe(topics, listener)
        return member

    def transactions(self, transactional_id: str | None = None) -> Transactions:
        """A transactional writer, closed after the test."""
        made = self.backend.transactions(transactional_id or self.name("transactions"))
        self._opened.append(made)
        return made

    def record_fetch(self) -> RecordFetch:
        """A reader of single records, closed after the test."""
        made = self.backend.record_fetch()
        self._opened.append(made)
        return made

    @contextmanager
    def lasting(self, make: Callable[[], Backend]) -> Iterator[Backend]:
        """Another backend for as long as the test's block runs."""
        backend = make()
        try:
            yield backend
        finally:
            backend.close()

    def close(self) -> None:
        """Closes the objects of a test; closing an object twice changes nothing."""
        for each in reversed(self._opened):
            each.close()
