"""The running callbacks that a commit notes: the messages that they hold, for the next owner and for operators.

Rules
1. The notes of suspects come first (`crash_suspects`). Each message whose callback was seen running follows, if there
   is room.
2. A message that a callback keeps for long is noted, if need be by a commit for this alone: operators look there for
   what blocks a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.notes import Doubt, Notes
from kafka_pubsub.subscribe.formats.record import RetryRecord
from kafka_pubsub.subscribe.partition.leases import Lease, Leases
from kafka_pubsub.subscribe.partition.retry_state import RetryState

__all__ = ["StartedNotes"]


class StartedNotes:
    """The `Noter` of one partition's commits."""

    def __init__(self, leases: Leases, retries: RetryState) -> None:
        self._leases = leases
        self._retries = retries
        #: Records that the last commit noted, or would have noted if there had been room.
        self._named: set[tuple[bool, int]] = set()

    @property
    def older(self) -> bool:
        """Noter: whether newer copies of main's messages may lie in the retry partition."""
        return self._retries.older

    @property
    def doubts(self) -> tuple[Doubt, Doubt]:
        """Noter: what may have been started in main and in the retry partition."""
        return self._retries.main_suspects.doubt, self._retries.suspects.doubt

    def main_notes(self, position: int, gone: Collection[int]) -> Notes:
        """Returns the notes of the main partition."""
        self._named = {_place(record) for record in self._current()}
        return self._retries.main_suspects.note(self._wishes(position, retried=False), position, gone)

    def retry_notes(self, position: int, gone: Collection[int]) -> Notes:
        """Returns the notes of the retry partition."""
        return self._retries.suspects.note(self._wishes(position, retried=True), position, gone)

    def _wishes(self, position: int, *, retried: bool) -> list[int]:
        return [offset for there, offset in self._named if there is retried and offset >= position]

    def _current(self) -> Iterator[Record]:
        """Yields the records whose callbacks were seen running."""
        for lease in self._leases.active:
            if lease.deadline is not None and lease.done < len(lease.records):
                yield lease.records[lease.done]

    def lacks_slow(self, is_slow: Callable[[Lease, float], bool], now: float) -> bool:
        """Returns whether a callback keeps a record for long that the log doesn't name (rule 2)."""
        return any(
            lease.done < len(lease.records)
            and _place(lease.records[lease.done]) not in self._named
            and is_slow(lease, now)
            for lease in self._leases.active
        )


def _place(record: Record) -> tuple[bool, int]:
    """Returns whether the record lies in the retry partition, and its offset there or in main."""
    return (True, record.retry_offset) if isinstance(record, RetryRecord) else (False, record.offset())
