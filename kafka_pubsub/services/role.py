"""The parts of a service that the engine calls: its role, its tasks and their work.

Theory. A service reads sets of topics. The topics of a set have equal numbers of partitions, the holder of partition p
of one holds p of all, and everything of p is one state machine, a `Task`. Tasks know nothing of each other, of threads
or of Kafka.

Rules
1. A task's decisions follow from the logs and from its committed positions. After any failure it is made anew from
   there.
2. One thread calls all tasks and the role. `Work` is written as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError
from kafka_pubsub.model import Committed, NewRecord, StoredRecord

__all__ = ["OF_THE_RECORD", "Append", "Beginning", "Role", "Task", "Work"]

#: Errors of a record itself. A topic that is away or takes no records from us is waited for.
OF_THE_RECORD = InvalidArgument | FailedPrecondition


class Work(NamedTuple):
    """The work that a task stores in one transaction: records, and positions by the number of the topic.

    `note`: the task's own note, which comes back once the work is stored or refused. `waits`: whether something isn't
    in it only because of a topic that took no records; until that is stored the task goes alone.
    """

    records: Sequence[NewRecord]
    positions: Mapping[int, Committed]
    note: object = None
    waits: bool = False


class Append(NamedTuple):
    """A record without a key that is written outside of transactions, soon; it may be lost."""

    topic: str
    partition: int
    value: bytes
    headers: Sequence[tuple[str, bytes | None]]


class Beginning(NamedTuple):
    """One topic's partition when its task begins: its committed position and the range of its log."""

    committed: Committed
    start: int
    end: int


class Task(Protocol):
    """One partition of all topics of a set. Topics go by their numbers in the set."""

    @property
    def positions(self) -> Sequence[int]:
        """Of each topic: from where to read."""

    def receive(self, topic: int, records: Sequence[StoredRecord], now: int) -> int | None:
        """Takes records that were read; answers from where to read again if not on from here."""

    def reach(self, topic: int, position: int) -> int | None:
        """Nothing below the position is left to be read; answers as `receive`."""

    def unsure(self) -> Iterable[int]:
        """Topics of which it waits to learn how far they were read."""

    def full(self, room: int) -> Iterable[int]:
        """Topics of which more than `room` bytes are waiting here."""

    def append(self, now: int) -> Append | None:
        """A record to be written outside of transactions now; `now` is milliseconds of the engine's clock."""

    def appended(self, record: StoredRecord, now: int) -> None:
        """The record of an earlier `append` is stored, where and when `record` says."""

    def awaits(self) -> bool:
        """Whether the record of an earlier `append` wasn't read back yet."""

    def work(self, most: int, room: int) -> Work | None:
        """Up to `most` records, of some `room` bytes, and the positions to commit with them; None: nothing.

        It may be asked again before the work is stored, and never goes on from a work that wasn't.
        """

    def write_as(self, writer: str) -> None:
        """Work is written under this transactional id from now on; the next work commits the id alone."""

    def last_positions(self) -> Mapping[int, Committed]:
        """The positions to commit when the partition is given up in order, after the last work was stored."""

    def refuse(self, work: Work, number: int, reason: PubSubError) -> None:
        """The log won't take a record of a work, whatever else goes with it; the task is made anew.

        Only a reason `OF_THE_RECORD` is a fault of the record. Otherwise its topic takes no records now.
        """

    def stored(self, work: Work) -> None:
        """A work is stored; those before it were."""

    def wakeup_at(self) -> int | None:
        """When it wants to be asked next, by the engine's clock; None: when there is something new."""


class Role(Protocol):
    """One kind of service."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def sets(self) -> Sequence[Sequence[str]]: ...
    @property
    def at_once(self) -> int:
        """Records that one transaction takes of all tasks; the last work may go beyond."""

    def grow(self) -> bool:
        """Takes sets up that have come since it was last asked; whether there are any."""

    def outdated(self) -> bool:
        """Whether `sets` holds topics that it shouldn't any more; then the service begins again with a new role."""

    def writer_of(self, committed: Sequence[Committed]) -> str | None:
        """The transactional id of an owner of a partition that hasn't given it up in order, by its commits."""

    def expect(self, topics: Collection[str]) -> None:
        """Tasks of these topics begin now, and none after the next call: their requests may be made together."""

    def begin(self, topics: Sequence[str], number: int, beginnings: Sequence[Beginning], writer: str) -> Task:
        """The task of a partition of a set; raises if it can't begin. `writer` is our transactional id."""

    def close(self) -> None:
        """The service ends, or begins again with a new role."""

    @property
    def kept(self) -> Collection[int]:
        """Topics of which records stay readable for a round of deletions after they may go."""

    def trimmable(self, positions: Mapping[int, Committed]) -> Mapping[int, int]:
        """Of each topic: the records below this offset are needed no more, once these positions are committed."""
