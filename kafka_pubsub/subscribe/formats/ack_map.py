"""The metadata text of a commit.

It holds which process wrote it, which records above the position are finished, and which others were started (`notes`).

Theory. The broker stores at most 4095 characters beside an offset. A character carries 15 bits here: the code
points from U+3400 on, none of them a control character. What is finished is a list of numbers, alternately the length
of a gap (unfinished) and of a run (finished) above the committed offset. Where there is a checkpoint the text names
it, and lists only the runs that the checkpoint doesn't hold.

Layout: version, writer (4 units), nonce (2 units), flags (a bit each for `clean`, `more`, `older` and `doubt.twice`),
then numbers: the offset of the checkpoint, counted from 1 (0: there is none), and its nonce, how far the doubt reaches,
how far the log was read (from the position on; odd: below it) and the leader epoch there, counted from 1 (0: not
known), the count of the runs' numbers, those, the notes' numbers; checksum (3 units).

Rules
1. A number below 2**14 is one unit; each further unit carries 14 more bits (a set top bit means that more follow).
2. A text is never cut. Notes have a room of their own (`NOTED`). When the rest outgrows half of its room a checkpoint
   is asked for; when it outgrows all of it nothing can be committed without one.
3. A text that can't be decoded (a wrong checksum, another program's text) is `None`: those records are delivered
   again, never skipped.
4. In every version the first unit is the version and the last three are the checksum. So a text of a newer version is
   recognised and refused: to deliver again what it calls finished would be wrong, and to guess would be, too.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import UNREAD, LogEnd, Run
from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, Doubt, Notes

__all__ = ["CAPACITY", "NOTED", "VERSION", "AckMap", "bare_size", "decode", "encode"]

#: Characters of metadata that a broker with default settings stores (4096 is refused).
CAPACITY = 4095
#: The part of these characters that the notes may take.
NOTED = notes.ROOM

_FIRST = 0x3400
_UNIT = 15
_PAYLOAD = 14
_MORE = 1 << _PAYLOAD
_MASK = _MORE - 1
#: The version that is written, and the oldest one that is read.
VERSION, _OLDEST = 6, 6
_WRITER_UNITS = 4
_NONCE_UNITS = 2
_CHECKSUM_UNITS = 3
#: The count of numbers before those of the runs.
_HEAD = 6


class AckMap(NamedTuple):
    """The content of a commit's metadata.

    `writer` is a random number of the process that wrote it, from which its transactional id is made; `nonce` is one of
    the ownership. `clean`: nothing that was started is left. `checkpoint`: the one that `runs` count from; None: `runs`
    are all. `more`: the checkpoint holds finished records above this position. `older`: of messages above the position
    newer copies may lie in the retry partition. `doubt`: what may have been started by owners that ended in disorder.
    `read`: the end of what was ever read.
    """

    writer: int
    runs: tuple[Run, ...]
    clean: bool = False
    nonce: int = 0
    notes: Notes = notes.NOTHING
    checkpoint: Named | None = None
    more: bool = False
    older: bool = False
    doubt: Doubt = NO_DOUBT
    read: LogEnd = UNREAD


def encode(ack_map: AckMap, position: int) -> str:
    """Returns the metadata to commit beside `position`; `runs` are ascending, disjoint and not below it."""
    at = position
    numbers = (
        [0, 0] if ack_map.checkpoint is None else [1 + ack_map.checkpoint.offset, ack_map.checkpoint.nonce]
    )
    numbers += (max(0, ack_map.doubt.end - position), *_read(ack_map.read, position), 2 * len(ack_map.runs))
    for start, end in ack_map.runs:
        numbers += (start - at, end - start)
        at = end
    numbers += notes.numbers(ack_map.notes, position)
    units = [
        VERSION,
        *_fixed(ack_map.writer, _WRITER_UNITS),
        *_fixed(ack_map.nonce, _NONCE_UNITS),
        ack_map.clean | ack_map.more << 1 | ack_map.older << 2 | ack_map.doubt.twice << 3,
    ]
    if max(numbers) <= _MASK:
        units += numbers
    else:
        for number in numbers:
            units += _digits(number)
    units += _fixed(_checksum(units, position), _CHECKSUM_UNITS)
    return struct.pack(f">{len(units)}H", *[_FIRST + unit for unit in units]).decode("utf-16-be")


def bare_size(text: str, noted: Notes, position: int) -> int:
    """Returns how many characters of a text don't belong to its notes (rule 2)."""
    return len(text) - notes.units(notes.numbers(noted, position))


def decode(text: str, position: int) -> AckMap | None:
    """Returns what was committed beside `position`; None: the text is another. Raises if its version is newer."""
    units = [ord(character) - _FIRST for character in text]
    body, checksum = units[:-_CHECKSUM_UNITS], units[-_CHECKSUM_UNITS:]
    flags_at = 1 + _WRITER_UNITS + _NONCE_UNITS
    if not body or not all(0 <= unit < 1 << _UNIT for unit in units):
        return None
    if _joined(checksum) != _checksum(body, position):
        return None
    if body[0] > VERSION:
        raise FailedPrecondition(
            f"the metadata of the commit at offset {position} is of version {body[0]}, and this client reads versions "
            f"up to {VERSION}: a newer kafka_pubsub has written it. Nothing is delivered, because what was finished "
            "would be delivered again; update this process"
        )
    if body[0] < _OLDEST or len(body) <= flags_at:
        return None
    numbers = _numbers(body[flags_at + 1 :])
    if len(numbers) < _HEAD or numbers[_HEAD - 1] % 2 or _HEAD + numbers[_HEAD - 1] > len(numbers):
        return None
    where, name, doubt, reached, epoch, count, *rest = numbers
    noted = notes.parse(rest[count:], position)
    if noted is None:
        return None
    return AckMap(
        _joined(body[1 : 1 + _WRITER_UNITS]),
        _runs(rest[:count], position),
        bool(body[flags_at] & 1),
        _joined(body[1 + _WRITER_UNITS : flags_at]),
        noted,
        Named(where - 1, name) if where else None,
        bool(body[flags_at] & 2),
        bool(body[flags_at] & 4),
        Doubt(position + doubt, bool(body[flags_at] & 8)) if doubt else NO_DOUBT,
        LogEnd(position + (-(reached // 2) if reached % 2 else reached // 2), epoch - 1 if epoch else None),
    )


def _read(read: LogEnd, position: int) -> tuple[int, int]:
    ahead = read.offset - position
    return (2 * ahead if ahead >= 0 else 1 - 2 * ahead), (0 if read.epoch is None else 1 + read.epoch)


def _runs(numbers: Sequence[int], at: int) -> tuple[Run, ...]:
    runs: list[Run] = []
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(runs)


def _digits(number: int) -> list[int]:
    digits = []
    while number > _MASK:
        digits.append(number & _MASK | _MORE)
        number >>= _PAYLOAD
    return [*digits, number]


def _numbers(units: Sequence[int]) -> list[int]:
    numbers: list[int] = []
    number = shift = 0
    for unit in units:
        number |= (unit & _MASK) << shift
        shift += _PAYLOAD
        if not unit & _MORE:
            numbers.append(number)
            number = shift = 0
    return numbers if shift == 0 else []


def _fixed(number: int, count: int) -> list[int]:
    return [number >> (_UNIT * at) & ((1 << _UNIT) - 1) for at in range(count)]


def _joined(units: Iterable[int]) -> int:
    return sum(unit << (_UNIT * at) for at, unit in enumerate(units))


def _checksum(units: Sequence[int], position: int) -> int:
    """Returns the checksum, over the position too: a text beside another offset is as wrong as a damaged one."""
    return zlib.crc32(struct.pack(f">{len(units)}HQ", *units, position))
