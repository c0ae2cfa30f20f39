"""A tally: a record of the retry partition that says which of its records are finished, when that outgrows the map.

Theory. Hundreds of thousands of messages may wait behind one that fails again and again. Whatever finishes among them,
each new place of that message included, leaves a run of the map between two that wait. To get rid of a run by moving
what waits to the tail costs as many moves as wait before the next one, and what comes meanwhile lies behind the runs
that come meanwhile. So the runs are written down, as a record of the partition itself; from then on the map only names
that record, and holds what has finished since.

Rules
1. A tally counts while the last commit names it, and it isn't named before it has come back from the log: then its
   transaction has committed, and its offset is known. Until then the map holds all. So after a crash between the two it
   is a record that nobody names, and useless when it is read.
2. The one that is named is unfinished, so the position doesn't pass it. It is useless when the next one takes its
   place, when the map can do without, or when the position has come to it: nothing above is told by it then.
   What is useless is finished when the map has room for that, or with the next tally, which calls it finished already.
3. Where few wait between many runs they move to the tail instead: that shortens the log, too, which a tally doesn't.
4. A tally that the log refuses, or that doesn't come back, is tried again after `PAUSE`; meanwhile things go as if
   there were none.

Layout of its value: version, then for each run the gap before it (from offset 0 on) and its length, as numbers of 7
bits a byte, the lowest first, the top bit saying that more come; checksum (4, big endian). Its header is `ps-retry`
with `why` TALLY; `origin` tells ours from others'.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from zlib import crc32

from kafka_pubsub.core.ack_map import most_runs
from kafka_pubsub.core.offsets import Run
from kafka_pubsub.core.retry_books import RetryBooks, Tally
from kafka_pubsub.core.retry_record import RetryInfo, Why
from kafka_pubsub.model import Header

__all__ = ["MOST", "PAUSE", "Tallies", "TallyRecord", "decode", "encode"]

#: Runs of one tally: some 200 KB, a fifth of what a topic takes by default.
MOST = 50_000
#: Seconds before another one is tried.
PAUSE = 10.0

_VERSION = 1
_CHECKSUM = 4
#: Bits of the number of a tally within its ownership.
_COUNT = 20


class TallyRecord:
    """The record to be written, as a relocation takes it."""

    __slots__ = ("_time", "_value", "info")

    def __init__(self, value: bytes, info: RetryInfo, time: int) -> None:
        self._value = value
        self.info = info
        self._time = time

    def topic(self) -> str:
        return ""

    def partition(self) -> int:
        return self.info.partition

    def offset(self) -> int:
        return -1

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[Header]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time

    def __len__(self) -> int:
        return len(self._value)


def encode(runs: Sequence[Run]) -> bytes:
    """The value of a tally; the runs are ascending and disjoint."""
    body, at = bytearray([_VERSION]), 0
    for start, end in runs:
        body += _bytes(start - at) + _bytes(end - start)
        at = end
    return bytes(body) + crc32(body).to_bytes(_CHECKSUM)


def _bytes(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def decode(value: bytes | None) -> list[Run] | None:
    """The runs that a tally tells, or None if this isn't one."""
    if value is None or len(value) < 1 + _CHECKSUM or value[0] != _VERSION:
        return None
    body = value[:-_CHECKSUM]
    if crc32(body) != int.from_bytes(value[-_CHECKSUM:]):
        return None
    numbers: list[int] = []
    number = shift = 0
    for byte in body[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
    if shift or len(numbers) % 2:
        return None
    runs, at = [], 0
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return runs


class Tallies:
    """The tallies of one retry partition under one ownership."""

    def __init__(self, books: RetryBooks, topic_id: str, partition: int, nonce: int) -> None:
        self._books = books
        self._info = RetryInfo(topic_id, partition, 0, why=Why.TALLY)
        self._first = nonce << _COUNT
        self._count = 0
        #: Whether one is to be written with the next commit.
        self.wanted = False
        #: Written, but not come back yet: what tells it from others, the runs, and the tallies that it makes useless.
        self._sent: tuple[int, Sequence[Run], Collection[int]] | None = None
        self._not_before = 0.0
        #: Those that were read and are to be finished.
        self.useless: set[int] = set()

    def helps(self, now: float) -> bool:
        """The map is half full: whether a tally is on its way, or will be now, that makes room (rules 3 and 4)."""
        if now < self._not_before:
            return self._sent is not None
        self._sent = None
        books = self._books
        self.wanted = self.wanted or (
            books.run_count > 0 and books.total <= MOST and books.waiting > books.total
        )
        return self.wanted

    def write(self, now: float, wall: int) -> TallyRecord | None:
        """The record that goes with the next commit, if one is wanted."""
        if not self.wanted:
            return None
        self.wanted, self._not_before = False, now + PAUSE
        self._count += 1
        books = self._books
        gone = {
            *self.useless,
            *(() if books.tally is None or books.finished(books.tally) else (books.tally,)),
        }
        runs = books.after(gone).runs
        info = self._info._replace(origin=self._first + self._count)
        self._sent = info.origin, runs, gone
        return TallyRecord(encode(runs), info, wall)

    def aborted(self) -> None:
        """What was written with the last commit wasn't stored."""
        self._sent = None

    def came(self, info: RetryInfo, offset: int) -> bool:
        """A tally was read; True if commits name it from now on."""
        if offset == self._books.tally:
            return False
        if self._sent is None or info.origin != self._sent[0]:
            self.useless.add(offset)
            return False
        _, runs, gone = self._sent
        for each in gone:
            if not self._books.finished(each):
                self._books.finish(each)
        self.useless -= set(gone)
        self._books.name(Tally(offset, runs))
        self._sent, self._not_before = None, 0.0
        return True

    def are_at(self, offset: int) -> bool:
        """Whether there is an unfinished tally."""
        return offset == self._books.tally or offset in self.useless

    def look(self, room: int) -> bool:
        """Gives up, and finishes, what is useless (rule 2); `room`: for so many runs more. True if anything changed."""
        books = self._books
        named = books.tally
        dispensable = named is not None and (
            named == books.committable or 4 * books.total <= most_runs(books.span)
        )
        if named is not None and dispensable:
            if not books.finished(named):  # else the log has lost it
                self.useless.add(named)
            books.name(None)
        done = [
            offset
            for offset in sorted(self.useless)[: max(1, room)]
            if room > 0 or offset == books.committable
        ]
        for offset in done:
            self.useless.discard(offset)
            books.finish(offset)
        return dispensable or bool(done)
