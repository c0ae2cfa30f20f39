"""The text that travels in a commit's metadata.

It says who wrote it, which records above the position are finished, and which of the others were started (`notes`).

Theory. The broker stores at most 4095 characters beside an offset. A character carries 15 bits here: the code
points from U+3400 on, none of them special to anybody. A map is a list of numbers, alternately the length of a
gap (unfinished) and of a run (finished) above the committed offset.

Layout: version, writer (4 units), nonce (2 units), flags, count of numbers, numbers, the notes' numbers, checksum
(3 units). Version 1 had neither nonce nor notes; it is read as well.

Rules
1. A number below 2**14 is one unit; each further unit carries 14 more bits (a set top bit says: more to come).
2. The map always fits, and is never cut: `most_runs` tells whoever hands out records when to stop.
3. What can't be decoded - another version, a wrong checksum, a stranger's text - is `None`: those records are
   replayed, never skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.core import notes
from kafka_pubsub.core.notes import Notes
from kafka_pubsub.core.offsets import Run

__all__ = ["CAPACITY", "NOTED", "AckMap", "decode", "encode", "most_runs"]

#: Characters of metadata that a broker with default settings stores (4096 is refused).
CAPACITY = 4095

_FIRST = 0x3400
_UNIT = 15
_PAYLOAD = 14
_MORE = 1 << _PAYLOAD
_MASK = _MORE - 1
_VERSION = 2
_WRITER_UNITS = 4
_NONCE_UNITS = 2
_CHECKSUM_UNITS = 3
#: Characters of those that the notes may take.
NOTED = notes.ROOM
#: Version, writer, nonce, flags, checksum, the widest count, and the notes.
_OVERHEAD = 1 + _WRITER_UNITS + _NONCE_UNITS + 1 + _CHECKSUM_UNITS + 2 + NOTED
#: Units of the widest number, 63 bits.
_WIDEST = 5


class AckMap(NamedTuple):
    """What a commit's metadata says.

    `writer` is a random number of the process that wrote it, from which its transactional id is made; `nonce` one of
    the ownership. `clean`: nothing that was started is left.
    """

    writer: int
    runs: tuple[Run, ...]
    clean: bool = False
    nonce: int = 0
    notes: Notes = notes.NOTHING


def most_runs(span: int) -> int:
    """How many runs over `span` offsets surely fit the metadata.

    A number wider than one unit spans at least 2**14 offsets for each further unit, so wide ones are rare.
    """
    room = CAPACITY - _OVERHEAD
    return max(room - (span >> _PAYLOAD), room // _WIDEST) // 2


def encode(ack_map: AckMap, position: int) -> str:
    """The metadata to commit beside `position`; `runs` are ascending, disjoint and not below it."""
    numbers: list[int] = []
    at = position
    for start, end in ack_map.runs:
        numbers += (start - at, end - start)
        at = end
    units = [
        _VERSION,
        *_fixed(ack_map.writer, _WRITER_UNITS),
        *_fixed(ack_map.nonce, _NONCE_UNITS),
        int(ack_map.clean),
    ]
    numbers.insert(0, len(numbers))
    numbers += notes.numbers(ack_map.notes, position)
    if max(numbers) <= _MASK:
        units += numbers
    else:
        for number in numbers:
            units += _digits(number)
    units += _fixed(_checksum(units, position), _CHECKSUM_UNITS)
    return struct.pack(f">{len(units)}H", *[_FIRST + unit for unit in units]).decode("utf-16-be")


def decode(text: str, position: int) -> AckMap | None:
    """The map that was committed beside `position`, or None if this isn't one."""
    units = [ord(character) - _FIRST for character in text]
    body, checksum = units[:-_CHECKSUM_UNITS], units[-_CHECKSUM_UNITS:]
    if len(body) < 2 + _WRITER_UNITS or not all(0 <= unit < 1 << _UNIT for unit in units):
        return None
    if body[0] not in (1, _VERSION) or _joined(checksum) != _checksum(body, position):
        return None
    flags_at = 1 + _WRITER_UNITS + (0 if body[0] == 1 else _NONCE_UNITS)
    numbers = _numbers(body[flags_at + 1 :])
    if not numbers or numbers[0] % 2 or not 1 + numbers[0] <= len(numbers):
        return None
    noted = notes.parse(numbers[1 + numbers[0] :], position)
    if noted is None:
        return None
    runs = _runs(numbers[1 : 1 + numbers[0]], position)
    writer, nonce = _joined(body[1 : 1 + _WRITER_UNITS]), _joined(body[1 + _WRITER_UNITS : flags_at])
    return AckMap(writer, runs, bool(body[flags_at] & 1), nonce, noted)


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
    """Covers the position too: a map beside another offset is as wrong as a damaged one."""
    return zlib.crc32(struct.pack(f">{len(units)}HQ", *units, position))
