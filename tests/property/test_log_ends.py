"""The last offset of a log is taken for a transaction's marker only where nothing else can lie there.

Every log that a few steps can make behind a record of the transaction is visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka_pubsub.subscribe.takeover.log_ends import is_marker

#: The offset of the record in each log, and its transaction.
WRITTEN, OURS = 0, 0
STEPS = 6


class Entry(NamedTuple):
    """A record (of a transaction, or of none) or the marker of a transaction."""

    transaction: int | None
    marker: bool = False


class Log(NamedTuple):
    """A log and the part of it that all replicas have."""

    entries: tuple[Entry, ...] = (Entry(OURS),)
    replicated: int = 1

    @property
    def readable(self) -> int:
        """Returns where a reader of committed records finds the end: below every transaction that may be open."""
        ended = {each.transaction for each in self.entries[: self.replicated] if each.marker}
        begun = (
            at
            for at, each in enumerate(self.entries)
            if not each.marker and each.transaction is not None and each.transaction not in ended
        )
        return min([self.replicated, *begun])

    def next_logs(self) -> Iterator[Log]:
        """Returns the log after each step that may come next."""
        entries = self.entries
        for other in (1, 2):
            last = next((each for each in reversed(entries) if each.transaction == other), None)
            if last is None:
                yield self._replace(entries=(*entries, Entry(other)))
            elif not last.marker:
                yield self._replace(entries=(*entries, Entry(other, marker=True)))
        if Entry(OURS, marker=True) not in entries:
            yield self._replace(entries=(*entries, Entry(OURS, marker=True)))
        yield self._replace(entries=(*entries, Entry(None)))
        if self.replicated < len(entries):
            yield self._replace(replicated=self.replicated + 1)


def logs() -> set[Log]:
    """Returns every log that up to `STEPS` steps can make."""
    found = newest = {Log()}
    for _ in range(STEPS):
        newest = {after for log in newest for after in log.next_logs()}
        found = found | newest
    return found


def claims(end: Callable[[Log], int], *, unread: bool = False) -> Iterator[bool]:
    """Returns for each log whose last offset is called a marker whether a marker lies there.

    `end`: the supposed end of the log. `unread`: the record may not have been read yet.
    """
    position = WRITTEN + 1
    for log in logs():
        may_be_read = log.readable > WRITTEN
        if (unread or may_be_read) and is_marker(WRITTEN, position, end(log)):
            yield log.entries[position] == Entry(OURS, marker=True)


def test_what_is_called_a_marker_is_one() -> None:
    found = list(claims(lambda log: log.replicated))
    assert found, "nothing was called a marker"
    assert all(found)


def test_a_broken_rule_is_noticed() -> None:
    assert not all(claims(lambda log: log.readable)), "open transactions must count"
    assert not all(claims(lambda log: log.replicated, unread=True)), "the record must have been read"


def test_nothing_is_called_a_marker_unless_one_offset_is_left_behind_the_record() -> None:
    assert not is_marker(0, 2, 3)
    assert not is_marker(0, 1, 3)
    assert not is_marker(0, 1, 1)
