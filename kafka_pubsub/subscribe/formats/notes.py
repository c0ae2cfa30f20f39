"""Notes in a commit's metadata: which unfinished messages had been started, and which one was tried alone.

Theory. The next owner of a partition reads them after a crash: the noted messages are suspects. Offsets are noted as
runs above the committed position, like the finished ones, so a hundred neighbours take two numbers.

Rules
1. Notes have their own room in the metadata (`ROOM` units), so they never take the room of the finished runs.
2. `fit` decides which offsets can be noted; where notes are required, messages that don't fit aren't started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_pubsub.model import Run

__all__ = [
    "MOST",
    "NOTHING",
    "NO_DOUBT",
    "ROOM",
    "Doubt",
    "Notes",
    "as_runs",
    "fit",
    "numbers",
    "offsets",
    "parse",
]

#: Units of metadata (15 bits each) for notes: an eighth of all.
ROOM = 512
#: Offsets that may be noted as a duty, suspects of earlier crashes included. More would fit, but after the next crash
#: each of them is tried alone, and costs a commit.
MOST = 128
#: A number takes one unit for each 14 bits.
_UNIT = 14


class Notes(NamedTuple):
    """Runs of started, unfinished offsets, ascending and disjoint; `trial`: the one that was tried alone."""

    started: tuple[Run, ...] = ()
    trial: int | None = None


NOTHING = Notes()


class Doubt(NamedTuple):
    """A doubt: an owner that ended in disorder may have started messages below `end` that aren't all finished.

    `twice`: another owner has ended in disorder since, so one of these messages may be what kills.
    """

    end: int = 0
    twice: bool = False

    def next(self, position: int, *, clean: bool, reach: int) -> Doubt:
        """Returns the next owner's doubt; the last owner may have started any message below `reach`."""
        standing = self.end > position
        if clean:
            return self if standing else NO_DOUBT
        end = max(reach, self.end)
        return Doubt(end, standing) if end > position else NO_DOUBT


NO_DOUBT = Doubt()


def as_runs(some: Iterable[int]) -> tuple[Run, ...]:
    """Returns offsets as runs."""
    runs: list[Run] = []
    for offset in sorted(some):
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        elif not runs or runs[-1][1] < offset:
            runs.append((offset, offset + 1))
    return tuple(runs)


def offsets(notes: Notes) -> list[int]:
    """Returns all noted offsets."""
    return [offset for start, end in notes.started for offset in range(start, end)]


def numbers(notes: Notes, position: int) -> list[int]:
    """Returns the notes as numbers relative to `position`; no noted offset is below it."""
    if notes == NOTHING:
        return []
    found = [0 if notes.trial is None else notes.trial - position + 1]
    at = position
    for start, end in notes.started:
        found += (start - at, end - start)
        at = end
    return found


def parse(some: Sequence[int], position: int) -> Notes | None:
    """Returns the notes that `numbers` encoded; None if the numbers aren't valid notes."""
    if not some:
        return NOTHING
    if len(some) % 2 == 0:
        return None
    runs: list[Run] = []
    at = position
    for gap, length in zip(some[1::2], some[2::2], strict=True):
        runs.append((at + gap, at + gap + length))
        at += gap + length
    return Notes(tuple(runs), some[0] + position - 1 if some[0] else None)


def units(some: Iterable[int]) -> int:
    """Returns how many units of metadata the numbers take."""
    return sum(max(1, -(-number.bit_length() // _UNIT)) for number in some)


def fit(duty: Iterable[int], wishes: Iterable[int], position: int, trial: int | None = None) -> Notes:
    """Returns notes of all of `duty`, and of as many of `wishes`, the lowest first, as there is room for."""
    noted = set(duty)
    for offset in sorted(wishes)[: max(0, MOST - len(noted))]:
        noted.add(offset)
    notes = Notes(as_runs(noted), trial)
    if units(numbers(notes, position)) <= ROOM:
        return notes
    return Notes(as_runs(duty), trial)
