"""How far a router's partition is, and the text beside each committed offset that says so.

Theory. Of each log the committed offset is the lowest that a restart must read again: of what waits in memory, else of
what wasn't handled. The text beside it says up to where the log was handled. The text beside the offset of ingest says
besides how far home was written (`mark`), what time it was at that offset, and by which transactional id it is written,
so that a successor can end a dead router's transaction.

Rules
1. A text begins with the version and ends with a checksum over itself and the offset. What can't be read, or is of a
   newer version, is refused: guessing would deliver messages twice.
2. An offset without a text is an operator's reset, and counts as it stands: nothing above it was handled.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kafka_pubsub.core.delays.values import BEFORE_ALL, Key
from kafka_pubsub.errors import FailedPrecondition

__all__ = ["IngestProgress", "Progress", "parse_ingest", "parse_tier", "writer_of"]

_VERSION = "1"
_NO_WRITER = ""


class Progress(NamedTuple):
    """Of one log: read again from `position` on, of which all below `handled` was handled once."""

    position: int
    handled: int

    def text(self) -> str:
        """What is committed beside the position."""
        return _sealed(self.position, f"{_VERSION};{self.handled:x}")


class IngestProgress(NamedTuple):
    """The same of the log of ingest; `mark` is the key of the last message that was written home."""

    position: int
    handled: int
    mark: Key = BEFORE_ALL
    time: int = 0

    def text(self, writer: str) -> str:
        """What is committed beside the position, by the transactional id `writer`."""
        numbers = (self.handled, self.mark[0] + 1, self.mark[1] + 1, self.time)
        return _sealed(self.position, ";".join((_VERSION, *(f"{each:x}" for each in numbers), writer)))


def parse_tier(position: int, text: str) -> Progress:
    """What was committed; raises if it can't be read."""
    if not text:
        return Progress(position, position)
    fields = _opened(position, text)
    try:
        (handled,) = fields
        return Progress(position, int(handled, 16))
    except ValueError:
        raise _unreadable(position, text) from None


def parse_ingest(position: int, text: str) -> IngestProgress:
    """What was committed; raises if it can't be read."""
    if not text:
        return IngestProgress(position, position)
    fields = _opened(position, text)
    try:
        handled, due, offset, time = (int(field, 16) for field in fields[:4])
        (_,) = fields[4:]
    except ValueError:
        raise _unreadable(position, text) from None
    return IngestProgress(position, handled, (due - 1, offset - 1), time)


def writer_of(position: int, text: str) -> str | None:
    """The transactional id that the commit was made by; None: it doesn't say."""
    return (_opened(position, text)[4:] or [_NO_WRITER])[0] or None if text else None


def _sealed(position: int, body: str) -> str:
    return f"{body};{_checksum(position, body):08x}"


def _opened(position: int, text: str) -> list[str]:
    """The fields between version and checksum."""
    body, _, checksum = text.rpartition(";")
    version, *fields = body.split(";")
    if checksum != f"{_checksum(position, body):08x}":
        raise _unreadable(position, text)
    if version != _VERSION:
        raise FailedPrecondition(
            f"delay router: the commit at offset {position} is of version {version}, and this router reads version "
            f"{_VERSION}: a newer kafka_pubsub has written it; update this process"
        )
    return fields


def _checksum(position: int, body: str) -> int:
    return zlib.crc32(f"{position};{body}".encode())


def _unreadable(position: int, text: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"delay router: the text {text[:60]!r} beside the committed offset {position} isn't one of a router's: another "
        "program has committed for its group. Nothing is delivered, because messages would be delivered twice; commit "
        "the last good offset and text again, or the offset without a text to deliver again what waits behind it"
    )
