"""The diary of consumers that were killed, and what it proves. Pure, apart from `append`.

Theory: every consumer process appends a record when a delivery starts and one when it acknowledges, each in one
`write` to a file opened with O_APPEND. What `write` has taken belongs to the kernel, so SIGKILL loses no record and
tears none. The ack's record is written *before* `ack()` is called: a message without that record was certainly not
acknowledged and must come back, whatever instant the kill chose.

What must hold, per key, with n the messages of the key in the order of publishing (0, 1, 2, ...):
1. A process starts a key at or before its oldest message without an ack, never behind it: what is behind is lost.
2. From there on it delivers one after the other, each number once.
3. It starts a message only when the one before it, of that key, has been acknowledged: one in flight.
4. In the end the last ack of each key is that of its last message.
5. After a kill, what is delivered again is at most what was in flight then, plus what had been acknowledged in the
   last `lag` seconds. What a kill has left redeliverable and the next process did not get to, remains so.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["ACK", "RECORD_BYTES", "START", "Findings", "Life", "Record", "append", "check", "read"]

START = 0
ACK = 1
_LAYOUT = struct.Struct("<BIIQ")
RECORD_BYTES = _LAYOUT.size
# Enough to understand a failure; the counts are complete.
EXAMPLES = 10


class Record(NamedTuple):
    """Which message (the key's number, its place in the key), what happened, and when (ns since 1970)."""

    kind: int
    key: int
    place: int
    time_ns: int


@dataclass(frozen=True)
class Life:
    """What one consumer process wrote, in order, and when it was killed (None: it was let go in peace)."""

    records: Iterable[Record]
    killed_ns: int | None


@dataclass
class Findings:
    """Counts of what happened and of what must not."""

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


def append(descriptor: int, kind: int, key: int, place: int, time_ns: int) -> None:
    """Write one record; when this returns, SIGKILL can't lose it."""
    os.write(descriptor, _LAYOUT.pack(kind, key, place, time_ns))


def read(path: Path) -> Iterator[Record]:
    """The records of one process, in the order they were written."""
    return map(Record._make, _LAYOUT.iter_unpack(path.read_bytes()))


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
        # Key -> the place in flight. What is still here at the end was in flight when the process died.
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
