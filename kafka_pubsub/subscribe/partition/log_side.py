"""One of the two logs of a partition: the home partition's, or the retry partition's. A commit speaks of both alike.

Theory. Of each log a commit stores a position, what is finished above it, what was started, and how far the log was
read. `Offsets` and `FinishedRuns` know what is finished, `CrashSuspects` what must be noted before it starts. They are
two classes: a million unfinished records of the retry partition must take no memory, and at home a record that is
finished out of order must cost little (0.7 us, with runs 2.0 us).

Rules
1. The notes of suspects come first. Each message whose callback was seen running follows, if there is room.
2. A message that a callback keeps for long is noted, if need be by a commit for this alone: operators look there for
   what blocks a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import LogEnd, Run
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.crash_suspects import CrashSuspects, TrialLock
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.settings import LogStart

__all__ = ["Finished", "LogSide", "SideProgress"]


class Finished(Protocol):
    """What is finished in a log (`Offsets`, `FinishedRuns`)."""

    read: LogEnd
    done: int

    @property
    def committable(self) -> int: ...
    def tell(self, runs: Iterable[Run]) -> None: ...
    def progress(self, gone: Collection[int]) -> tuple[int, Sequence[Run], Callable[[], Sequence[Run]]]: ...


class SideProgress(NamedTuple):
    """The state of one log when a commit is made."""

    position: int
    #: The finished runs above the position that the checkpoint doesn't hold, and a function that returns all.
    fresh: Sequence[Run]
    runs: Callable[[], Sequence[Run]]
    #: How far the log was read.
    read: LogEnd
    notes: Notes
    doubt: Doubt
    #: The number of messages that were finished in this ownership.
    done: int


class LogSide:
    """One log of one partition; `retry`: whether it is the retry partition's."""

    def __init__(
        self, start: LogStart, finished: Finished, active: Collection[Lease], turn: TrialLock, *, retry: bool
    ) -> None:
        self.finished = finished
        self.suspects = CrashSuspects(turn, start.notes, start.doubt)
        self._active = active
        self._retry = retry
        #: Where the runs end that the checkpoint holds.
        self._held_to = _end(start.in_checkpoint)
        #: The running messages that the last commit noted, or would have noted if there had been room.
        self._named: set[int] = set()

    def progress(self, gone: Collection[int]) -> SideProgress:
        """Returns the state for a commit that also calls `gone` finished, and notes what runs."""
        position, fresh, runs = self.finished.progress(gone)
        done = self.finished.done + len(gone)
        notes = self.note(position, gone)
        return SideProgress(position, fresh, runs, self.finished.read, notes, self.suspects.doubt, done)

    def note(self, position: int, gone: Collection[int]) -> Notes:
        """Returns the notes of the next commit."""
        self._named = {_place(record) for record in self._running()}
        return self.suspects.note([each for each in self._named if each >= position], position, gone)

    def _running(self) -> Iterator[Record]:
        """Yields the records of this log whose callbacks were seen running."""
        for lease in self._active:
            if lease.deadline is not None and (record := self._current(lease)) is not None:
                yield record

    def _current(self, lease: Lease) -> Record | None:
        record = lease.records[lease.done] if lease.done < len(lease.records) else None
        return record if isinstance(record, RetryRecord) is self._retry else None

    def lacks_slow(self, is_slow: Callable[[Lease, float], bool], now: float) -> bool:
        """Returns whether a callback keeps a record for long that the log doesn't name (rule 2)."""
        return any(
            (record := self._current(lease)) is not None
            and _place(record) not in self._named
            and is_slow(lease, now)
            for lease in self._active
        )

    def holds_more(self, position: int) -> bool:
        """Returns whether the checkpoint has runs above the position."""
        return self._held_to > position

    def checkpointed(self, runs: Sequence[Run]) -> None:
        """Takes note that commits name a checkpoint with these runs from now on."""
        self._held_to = _end(runs)
        self.finished.tell(runs)


def _place(record: Record) -> int:
    """Returns the record's offset in its log."""
    return record.retry_offset if isinstance(record, RetryRecord) else record.offset()


def _end(runs: Sequence[Run]) -> int:
    return runs[-1][1] if runs else 0
