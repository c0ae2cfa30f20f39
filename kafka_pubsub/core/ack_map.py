"""The text that travels in a commit's metadata.

It says who wrote it, which records above the position are finished, and which of the others were started (`notes`).

Theory. The broker stores at most 4095 characters beside an offset. A character carries 15 bits here: the code
points from U+3400 on, none of them special to anybody. A map is a list of numbers, alternately the length of a
gap (unfinished) and of a run (finished) above the committed offset.

Layout: version, writer (4 units), nonce (2 units), flags, count of numbers, numbers, the notes' numbers, checksum
(3 units). The flags are a bit for `clean`, and `reach` in strides of 64 offsets, which older maps left at 0. Version 3
has bits (`ack_bits`) before the numbers: a number that says how many units, and those; the numbers go on from the last
run among the bits. Version 1 had neither nonce nor notes. All are read, and the shorter of 2 and 3 is written.

Rules
1. A number below 2**14 is one unit; each further unit carries 14 more bits (a set top bit says: more to come).
2. The map always fits, and is never cut: `most_runs` tells whoever hands out records when to stop. Over a span that
   fits as bits it never says so. A longer one is counted in runs, also those that may yet become of what is handed out:
   so either all that may be finished lies where bits reach, or all of it fits as numbers.
3. What can't be decoded - another version, a wrong checksum, a stranger's text - is `None`: those records are
   replayed, never skipped.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from kafka_pubsub.core import ack_bits, notes
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
_end = itemgetter(1)
_VERSION = 2
_WITH_BITS = 3
#: What a tally adds to the version.
_WITH_TALLY = 2
_WRITER_UNITS = 4
_NONCE_UNITS = 2
_CHECKSUM_UNITS = 3
#: Units of the widest number, 63 bits.
_WIDEST = 5
#: `reach` is told in strides of so many offsets, rounded up, in the bits beside that for `clean`: up to a million.
_STRIDE = 64
_MOST_STRIDES = (1 << _UNIT - 1) - 1
#: Characters of those that the notes may take.
NOTED = notes.ROOM
#: Version, writer, nonce, flags, the tally's place, checksum, the widest count, and the notes.
_OVERHEAD = 1 + _WRITER_UNITS + _NONCE_UNITS + 1 + _WIDEST + _CHECKSUM_UNITS + 2 + NOTED
#: Beside the bits: how many, and one run that goes on behind what they reach, as holes do.
_BESIDE_BITS = 1 + 2 * _WIDEST


class AckMap(NamedTuple):
    """What a commit's metadata says.

    `writer` is a random number of the process that wrote it, from which its transactional id is made; `nonce` one of
    the ownership. `clean`: nothing that was started is left. `reach`: how many offsets beyond the last run (or the
    position) the writer may have come to before its next commit; 0: it didn't say. `tally`: the offset of the record
    that tells of further runs; None: there are none.
    """

    writer: int
    runs: tuple[Run, ...]
    clean: bool = False
    nonce: int = 0
    notes: Notes = notes.NOTHING
    reach: int = 0
    tally: int | None = None


def most_runs(span: int) -> int:
    """How many runs over `span` offsets surely fit the metadata.

    A number wider than one unit spans at least 2**14 offsets for each further unit, so wide ones are rare.
    """
    room = CAPACITY - _OVERHEAD
    if span <= bit_span():
        return max(span, room // 2)
    return max(room - (span >> _PAYLOAD), room // _WIDEST) // 2


def bit_span() -> int:
    """Offsets above the position of which any may be finished and the map fits."""
    return max(0, CAPACITY - _OVERHEAD - _BESIDE_BITS) * ack_bits.UNIT


def encode(ack_map: AckMap, position: int) -> str:
    """The metadata to commit beside `position`; `runs` are ascending, disjoint and not below it."""
    runs, at = ack_map.runs, position
    bits: Sequence[int] = ()
    if count := _dense(runs, position):
        bits, at, runs = ack_bits.as_units(runs[:count], position), runs[count - 1][1], runs[count:]
    numbers: list[int] = []
    for start, end in runs:
        numbers += (start - at, end - start)
        at = end
    units = [
        (_WITH_BITS if bits else _VERSION) + (0 if ack_map.tally is None else _WITH_TALLY),
        *_fixed(ack_map.writer, _WRITER_UNITS),
        *_fixed(ack_map.nonce, _NONCE_UNITS),
        int(ack_map.clean) | min(-(-ack_map.reach // _STRIDE), _MOST_STRIDES) << 1,
    ]
    if ack_map.tally is not None:
        units += _digits(ack_map.tally - position)
    if bits:
        units += [*_digits(len(bits)), *bits]
    numbers.insert(0, len(numbers))
    numbers += notes.numbers(ack_map.notes, position)
    if max(numbers) <= _MASK:
        units += numbers
    else:
        for number in numbers:
            units += _digits(number)
    units += _fixed(_checksum(units, position), _CHECKSUM_UNITS)
    return struct.pack(f">{len(units)}H", *[_FIRST + unit for unit in units]).decode("utf-16-be")


def _dense(runs: Sequence[Run], position: int) -> int:
    """How many of the runs to write as bits; 0 where numbers are shorter."""
    count = bisect_right(runs, position + bit_span(), key=_end)
    if not count:
        return 0
    units = 1 - (position - runs[count - 1][1]) // ack_bits.UNIT  # with the one that says how many
    return count if units < 2 * count else 0


def decode(text: str, position: int) -> AckMap | None:
    """The map that was committed beside `position`, or None if this isn't one."""
    units = [ord(character) - _FIRST for character in text]
    body, checksum = units[:-_CHECKSUM_UNITS], units[-_CHECKSUM_UNITS:]
    if len(body) < 2 + _WRITER_UNITS or not all(0 <= unit < 1 << _UNIT for unit in units):
        return None
    tallied = body[0] in (_VERSION + _WITH_TALLY, _WITH_BITS + _WITH_TALLY)
    version = body[0] - _WITH_TALLY if tallied else body[0]
    if version not in (1, _VERSION, _WITH_BITS) or _joined(checksum) != _checksum(body, position):
        return None
    flags_at = 1 + _WRITER_UNITS + (0 if version == 1 else _NONCE_UNITS)
    rest, dense, tally = body[flags_at + 1 :], [], None
    if tallied:
        above, width = _first_number(rest)
        tally, rest = position + above, rest[width:]
    if version == _WITH_BITS:
        count, width = _first_number(rest)
        dense, rest = ack_bits.as_runs(rest[width : width + count], position), rest[width + count :]
    numbers = _numbers(rest)
    if not numbers or numbers[0] % 2 or not 1 + numbers[0] <= len(numbers):
        return None
    noted = notes.parse(numbers[1 + numbers[0] :], position)
    if noted is None:
        return None
    runs = (*dense, *_runs(numbers[1 : 1 + numbers[0]], dense[-1][1] if dense else position))
    writer, nonce = _joined(body[1 : 1 + _WRITER_UNITS]), _joined(body[1 + _WRITER_UNITS : flags_at])
    reach = (body[flags_at] >> 1) * _STRIDE
    return AckMap(writer, runs, bool(body[flags_at] & 1), nonce, noted, reach, tally)


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


def _first_number(units: Sequence[int]) -> tuple[int, int]:
    """The number at the beginning, and how many units it takes."""
    width = next((at + 1 for at, unit in enumerate(units) if not unit & _MORE), len(units))
    return sum((unit & _MASK) << _PAYLOAD * at for at, unit in enumerate(units[:width])), width


def _fixed(number: int, count: int) -> list[int]:
    return [number >> (_UNIT * at) & ((1 << _UNIT) - 1) for at in range(count)]


def _joined(units: Iterable[int]) -> int:
    return sum(unit << (_UNIT * at) for at, unit in enumerate(units))


def _checksum(units: Sequence[int], position: int) -> int:
    """Covers the position too: a map beside another offset is as wrong as a damaged one."""
    return zlib.crc32(struct.pack(f">{len(units)}HQ", *units, position))
