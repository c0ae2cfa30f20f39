"""The diary of consumers that were killed, and what it proves. Pure, apart from `Diary` and its readers.

Theory: every consumer process notes when a delivery starts and when it acknowledges, each in a slot of its own in a
file that is mapped into memory and shared. Stored slots belong to the kernel, so SIGKILL loses nothing,
and noting costs no system call: with a `write` for each record the consumer ran at a quarter of its speed (tried), and
a kill would not have been at full speed. A record's kind is stored last: a slot whose kind is 0 was never finished and
counts as not written. The ack's record is written *before* `ack()` is called: a message without that record was
certainly not acknowledged and must come back, whatever instant the kill chose. Slots are numbered in the order in
which they are taken, and a key's next event begins only after the last event has been noted, so a key's records are in
order even when two threads store at the same time.

Rules, per key, with n the messages of the key in the order of publishing (0, 1, 2, ...):
1. A process starts a key at or before its oldest message without an ack; a start behind that message loses the message.
2. From there on the process delivers in turn, each number once.
3. A process starts a message only when the message before it, of that key, has been acknowledged: one in flight.
4. In the end the last ack of each key is that of its last message.
5. After a kill, redeliveries are at most the messages that were in flight then, plus those acknowledged in the
   last `lag` seconds. Messages that a kill left redeliverable and the next process didn't get to remain redeliverable.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "ACK",
    "DURABLE",
    "NACK",
    "START",
    "Diary",
    "Findings",
    "Life",
    "Record",
    "check",
    "read",
    "written",
]

START = 1
ACK = 2
#: Of members only (`rows/members.py`, `rows/exactly_once.py`); a consumer that is judged by `check` nacks nothing.
NACK = 3
#: The client has said that the ack is stored.
DURABLE = 4
# Key, place, time, kind. Little-endian without padding; the kind last, see above.
_LAYOUT = struct.Struct("<IIQB")
_KIND_AT = _LAYOUT.size - 1
# Threads that had taken a slot and not filled it when they were killed leave holes; there are never more threads.
_MOST_HOLES = 1000
# Enough to understand a failure; the counts are complete.
EXAMPLES = 10


class Record(NamedTuple):
    """Which message (the key's number, its place in the key), which event, and when (ns since 1970)."""

    kind: int
    key: int
    place: int
    time_ns: int


@dataclass(frozen=True)
class Life:
    """The diary of a single consumer process, in order, and when it was killed (None: it ended in peace)."""

    records: Iterable[Record]
    killed_ns: int | None


@dataclass
class Findings:
    """Counts of events, and of events that must not be."""

    kills: int = 0
    deliveries: int = 0
    redeliveries: int = 0
    lost: int = 0
    disordered: int = 0
    excess: int = 0
    """Redeliveries beyond rule 5, summed over the kills."""
    stale: int = 0
    """Redelivered although acknowledged longer than the lag before the kill (legal while rule 5 holds)."""
    examples: list[str] = field(default_factory=list)

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


class Diary:
    """Where a single process notes what happens; any thread may."""

    def __init__(self, path: Path, records: int) -> None:
        with path.open("wb+") as file:
            # Sparse: unwritten slots take no room on the disk.
            file.truncate((records + _MOST_HOLES) * _LAYOUT.size)
            self._map = mmap.mmap(file.fileno(), 0)
        self._slot = itertools.count().__next__

    def note(self, kind: int, key: int, place: int, time_ns: int) -> None:
        """When this returns, SIGKILL can't lose the record."""
        _LAYOUT.pack_into(self._map, self._slot() * _LAYOUT.size, key, place, time_ns, kind)


def written(path: Path) -> int:
    """About how many records there are: exactly, but for slots that are being filled now."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        low, high = 0, len(view) // _LAYOUT.size
        while low < high:
            middle = (low + high) // 2
            if view[middle * _LAYOUT.size + _KIND_AT]:
                low = middle + 1
            else:
                high = middle
        return low


def read(path: Path) -> Iterator[Record]:
    """The records of a process, in the order of their slots."""
    with path.open("rb") as file:
        # Beyond the first hole there may be records of other threads.
        raw = file.read((written(path) + _MOST_HOLES) * _LAYOUT.size)
    whole = len(raw) - len(raw) % _LAYOUT.size
    for key, place, time_ns, kind in _LAYOUT.iter_unpack(raw[:whole]):
        if kind:
            yield Record(kind, key, place, time_ns)


class _Checker:
    """State across the lives of the consumer."""

    def __init__(self, lag_ns: int) -> None:
        self.findings = Findings()
        self._lag_ns = lag_ns
        # The highest place ever started, and ever acknowledged; a key that isn't here has none.
        self._highest: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        # Key -> places that a kill made redeliverable and no later process has delivered or passed.
        self._redeliverable: dict[int, set[int]] = {}

    def live(self, life: Life, number: int) -> None:
        last: dict[int, int] = {}
        # Key -> the place in flight. Keys that are left at the end were in flight when the process died.
        held: dict[int, int] = {}
        recent: list[tuple[int, int]] = []
        since = None if life.killed_ns is None else life.killed_ns - self._lag_ns
        allowed = sum(map(len, self._redeliverable.values()))
        before = self.findings.redeliveries
        for kind, key, place, time_ns in life.records:
            if kind == START:
                self._order(number, key, place, last.get(key), held)
                self._count(key, place)
                last[key] = held[key] = place
                continue
            self._acknowledge(number, key, place, held)
            if since is not None and time_ns >= since:
                recent.append((key, place))
        self._bound(number, self.findings.redeliveries - before, allowed)
        for key, place in [*held.items(), *recent]:
            self._redeliverable.setdefault(key, set()).add(place)
        self.findings.kills += life.killed_ns is not None

    def _order(
        self, number: int, key: int, place: int, previous: int | None, held: Mapping[int, int]
    ) -> None:
        findings = self.findings
        if previous is None:
            oldest = self._acked.get(key, -1) + 1
            if place > oldest:
                findings.lost += place - oldest
                findings.example(f"process {number}: key {key} begins at {place}, {oldest} was never acked")
            self._settle_before(key, place)
        elif place != previous + 1:
            findings.disordered += 1
            findings.example(f"process {number}: key {key} has {place} after {previous}")
        if key in held:
            findings.disordered += 1
            findings.example(f"process {number}: key {key} has {place} while {held[key]} is in flight")

    def _settle_before(self, key: int, place: int) -> None:
        # A process that begins a key behind some places has read their acks from the log: they are done for good.
        if key in self._redeliverable:
            self._redeliverable[key] = {waiting for waiting in self._redeliverable[key] if waiting >= place}

    def _count(self, key: int, place: int) -> None:
        findings = self.findings
        findings.deliveries += 1
        highest = self._highest.get(key, -1)
        self._highest[key] = max(highest, place)
        if place > highest:
            return
        findings.redeliveries += 1
        waiting = self._redeliverable.get(key, set())
        findings.stale += place not in waiting
        waiting.discard(place)

    def _acknowledge(self, number: int, key: int, place: int, held: dict[int, int]) -> None:
        if held.get(key) != place:
            self.findings.disordered += 1
            self.findings.example(f"process {number}: key {key} acks {place}, which it doesn't hold")
        else:
            del held[key]
        self._acked[key] = max(self._acked.get(key, -1), place)

    def _bound(self, number: int, again: int, allowed: int) -> None:
        if again > allowed:
            self.findings.excess += again - allowed
            self.findings.example(f"process {number}: {again} redeliveries, at most {allowed} were due")

    def finish(self, published: Mapping[int, int]) -> None:
        for key, count in published.items():
            missing = count - 1 - self._acked.get(key, -1)
            if missing:
                self.findings.lost += abs(missing)
                self.findings.example(f"key {key}: {missing} of {count} messages were never acked")


def check(lives: Iterable[Life], published: Mapping[int, int], lag: float) -> Findings:
    """Hold the diaries of all processes, oldest first, against the rules; `published` is messages per key."""
    checker = _Checker(round(lag * 1e9))
    for number, life in enumerate(lives):
        checker.live(life, number)
    checker.finish(published)
    return checker.findings
