"""How far a router's partition is, and the text beside each committed offset that says so.

Theory. Of each log the committed offset is the lowest that a restart must read again: of messages that wait in memory,
else of messages that weren't handled. The text beside it says up to where the log was handled. The text beside the
offset of ingest says besides how far home was written (`mark`, and `behind`), what time it was at that offset, how many
tiers were read, and by which transactional id it is written, so that a successor can end a dead router's transaction.

Rules
1. A text begins with the version and ends with a checksum over itself and the offset. A text that can't be read, or is
   of a newer version, is refused: guessing would deliver messages twice.
2. An offset without a text is an operator's reset, and counts as it stands: nothing above it was handled.
3. Version 1 of the text of ingest dated messages by ticks. It is taken over if nothing rests in memory, because that
   would be dated anew.
4. Version 2 moved the positions with each message that came home. A router that reads only that version would deliver
   again what came home since the last flush, so version 3 is another one, though its fields are the same. Version 4
   also names the homes that are behind the mark. Version 5 says besides before which time all messages are home, and
   how far the log was read, for partitions that share keys (`growth.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka_pubsub.delays.values import BEFORE_ALL, Key, number_of
from kafka_pubsub.errors import FailedPrecondition

__all__ = ["IngestProgress", "Progress", "RouterStart", "parse_ingest", "parse_tier", "writer_of"]

#: Versions of the texts of tiers and of ingest.
_TIER, _BY_TICKS, _AT_ONCE, _ONE_MARK, _WITH_HOMES, _INGEST = "1", "1", "2", "3", "4", "5"
_OF_INGEST = (_BY_TICKS, _AT_ONCE, _ONE_MARK, _WITH_HOMES, _INGEST)


class Progress(NamedTuple):
    """Of one log: read again from `position` on, of which all below `handled` was handled once."""

    position: int
    handled: int

    def text(self) -> str:
        """The text that is committed beside the position."""
        return _sealed(self.position, f"{_TIER};{self.handled:x}")


class IngestProgress(NamedTuple):
    """The same of the log of ingest; `mark` is the key of the last message that was written home.

    `time` is the time at the position; None: it isn't known. `tiers` is how many tiers were read by then. `behind` has
    the numbers of homes that have a mark of their own, with that mark. `home_before`: all messages that were read and
    are due before this time are home; `reached` is the time of the log as far as it was read. 0: it isn't known.
    `partitions`: of how many partitions the router knew; 0: its version knows of no growth.
    """

    position: int
    handled: int
    mark: Key = BEFORE_ALL
    time: int | None = 0
    tiers: int = 0
    behind: tuple[tuple[int, int, int], ...] = ()
    home_before: int = 0
    reached: int = 0
    partitions: int = 0

    def mark_of(self, home: str) -> Key:
        """Returns the key up to which the messages of a home were written there."""
        number = number_of(home)
        return next(((due, offset) for each, due, offset in self.behind if each == number), self.mark)

    def text(self, writer: str) -> str:
        """The text that is committed beside the position, by the transactional id `writer`."""
        numbers = (
            self.handled,
            self.mark[0] + 1,
            self.mark[1] + 1,
            self.time or 0,
            self.tiers,
            self.home_before,
            self.reached,
            self.partitions,
        )
        behind = ",".join(f"{home:x}.{due + 1:x}.{offset + 1:x}" for home, due, offset in self.behind)
        return _sealed(self.position, ";".join((_INGEST, *(f"{each:x}" for each in numbers), behind, writer)))


class RouterStart(NamedTuple):
    """Where a router begins: the committed positions, and where each tier's log ends.

    `unstored`: the sources (0 is ingest, tier k is k + 1) of which nothing is committed yet.
    """

    ingest: IngestProgress
    tiers: Sequence[Progress]
    ends: Sequence[int]
    unstored: Collection[int] = ()


def parse_tier(position: int, text: str) -> Progress:
    """The committed progress; raises if it can't be read."""
    if not text:
        return Progress(position, position)
    fields = _opened(position, text, (_TIER,))[1:]
    try:
        (handled,) = fields
        return Progress(position, int(handled, 16))
    except ValueError:
        raise _unreadable(position, text) from None


def parse_ingest(position: int, text: str) -> IngestProgress:
    """The committed progress; raises if it can't be read."""
    if not text:
        return IngestProgress(position, position, time=None)
    version, *fields, _ = _opened(position, text, _OF_INGEST)
    try:
        behind = _marks(fields.pop()) if version in (_WITH_HOMES, _INGEST) else ()
        said = [int(fields.pop(), 16) for _ in range(3)] if version == _INGEST else [0, 0, 0]
        partitions, reached, before = said
        handled, due, offset, time, *tiers = (int(field, 16) for field in fields)
        if len(tiers) != (version != _BY_TICKS):
            raise ValueError
    except ValueError:
        raise _unreadable(position, text) from None
    if version == _BY_TICKS and handled != position:
        raise FailedPrecondition(
            f"delay router: the commit at offset {position} is of version 1, and messages of it are in their last "
            "second: start a router of the former version for a moment, and stop it while nothing comes in"
        )
    mark, count = (due - 1, offset - 1), tiers[0] if tiers else 0
    return IngestProgress(position, handled, mark, time, count, behind, before, reached, partitions)


def _marks(text: str) -> tuple[tuple[int, int, int], ...]:
    marks = ([int(each, 16) for each in mark.split(".")] for mark in text.split(",") if mark)
    return tuple((home, due - 1, offset - 1) for home, due, offset in marks)


def writer_of(position: int, text: str) -> str | None:
    """The transactional id that the commit was made by; None: it doesn't say."""
    return _opened(position, text, _OF_INGEST)[-1] or None if text else None


def _sealed(position: int, body: str) -> str:
    return f"{body};{_checksum(position, body):08x}"


def _opened(position: int, text: str, versions: Collection[str]) -> list[str]:
    """The version and the fields behind it, without the checksum."""
    body, _, checksum = text.rpartition(";")
    version, *fields = body.split(";")
    if checksum != f"{_checksum(position, body):08x}":
        raise _unreadable(position, text)
    if version not in versions:
        raise FailedPrecondition(
            f"delay router: the commit at offset {position} is of version {version}, and this router reads version "
            f"{max(versions)}: a newer kafka_pubsub has written it; update this process"
        )
    return [version, *fields]


def _checksum(position: int, body: str) -> int:
    return zlib.crc32(f"{position};{body}".encode())


def _unreadable(position: int, text: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"delay router: the text {text[:60]!r} beside the committed offset {position} isn't one of a router's: another "
        "program has committed for its group. Nothing is delivered, because messages would be delivered twice; commit "
        "the last good offset and text again, or the offset without a text to deliver again what waits behind it"
    )
