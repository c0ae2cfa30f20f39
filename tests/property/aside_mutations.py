"""The rules of what may not go home now, each broken on purpose, for `delays_mutations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.delays.ingest import _BESIDE, Ingest
from kafka_pubsub.delays.memory import Memory, Rested
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.values import UNWRITTEN, Came, Key, Move, Waiting

__all__ = ["ASIDES"]

Patch = pytest.MonkeyPatch


def one_holds_up_all(patch: Patch) -> None:
    """Nothing is set aside."""
    patch.setattr(Router, "_has_room", lambda self, message: False)


def one_mark(patch: Patch) -> None:
    """The marks of homes that are behind aren't committed."""
    patch.setattr(Router, "_marks_behind", lambda self: ())


def marks_forgotten(patch: Patch) -> None:
    """A home isn't behind any more once it takes messages, though some of them wait."""

    def catch_up(self: Router) -> None:
        self.behind = {home: mark for home, mark in self.behind.items() if home in self._memory.aside}

    patch.setattr(Router, "_catch_up", catch_up)


def unread_forgotten(patch: Patch) -> None:
    """The same, once nothing waits that was read."""

    def catch_up(self: Router) -> None:
        firsts = [each[0][:2] for each in (self._heads, self._memory.heap) if each]
        if min(firsts, default=(1 << 60, 0)) > self.mark:
            self.behind = {home: mark for home, mark in self.behind.items() if home in self._memory.aside}

    patch.setattr(Router, "_catch_up", catch_up)


def marks_for_ever(patch: Patch) -> None:
    """A home stays behind."""
    patch.setattr(Router, "_catch_up", lambda self: None)


def marks_stand_still(patch: Patch) -> None:
    """What goes to a home that is behind doesn't move its mark."""
    real = Router._pass

    def go_by(self: Router, key: Key, message: Waiting) -> None:
        behind = dict(self.behind)
        real(self, key, message)
        self.behind = behind

    patch.setattr(Router, "_pass", go_by)


def mark_too_late(patch: Patch) -> None:
    """A home's own mark begins at the first message that is set aside."""
    real = Router._set_aside

    def set_aside(self: Router, message: Waiting, found: Sequence[Rested]) -> None:
        before = set(self.behind)
        real(self, message, found)
        for home in self.behind.keys() - before:
            self.behind[home] = (message.due, message.offset)

    patch.setattr(Router, "_set_aside", set_aside)


def others_overtake(patch: Patch) -> None:
    """A home that takes messages again gets new ones before those that were set aside."""
    patch.setattr(Router, "_is_held", lambda self, message: self._holds(message))


def cancelled_at_once(patch: Patch) -> None:
    """A message that would be set aside is cancelled, and its request goes."""
    real = Router._cancel

    def cancel(self: Router, key: Key, moves: list[Move]) -> None:
        aside, self._memory.aside = self._memory.aside, {}
        real(self, key, moves)
        self._memory.aside = aside

    patch.setattr(Router, "_cancel", cancel)


def late_requests_count(patch: Patch) -> None:
    """A request that came in after its message was due is handled like others."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        if message.target >= 0 and (message.due or 0) <= self.time:
            late = Waiting(self.time, message.offset, message.due or 0, 0, "", message.offset, message.record)
            self.arrived.append(late._replace(target=message.target))
            self.size += _BESIDE + len(message.record)
        else:
            real(self, message)

    patch.setattr(Ingest, "_arrive", arrive)


def requests_by_the_mark(patch: Patch) -> None:
    """A restart takes a request for done whose message was set aside with it."""
    real = Router._mark_of

    def mark_of(self: Router, message: Waiting) -> Key:
        return self.mark if message.target >= 0 else real(self, message)

    patch.setattr(Router, "_mark_of", mark_of)


def aside_moves_positions(patch: Patch) -> None:
    """Positions are committed past what was set aside."""
    real = Memory.lowest

    def lowest(self: Memory, source: int, otherwise: int) -> int:
        aside = {each[4].position for some in self.aside.values() for each in some if each[3] == source}
        rest = [at for at in self._resting[source] if at not in aside]
        return min([otherwise, *rest]) if aside else real(self, source, otherwise)

    patch.setattr(Memory, "lowest", lowest)


def afloat_aside_lost(patch: Patch) -> None:
    """What was set aside and is in no log is written nowhere."""
    real = Memory.put_back

    def put_back(self: Memory) -> Any:
        for home, some in list(self.aside.items()):
            self.aside[home] = [each for each in some if each[4].position != UNWRITTEN]
            if not self.aside[home]:
                del self.aside[home]
        return real(self)

    patch.setattr(Memory, "put_back", put_back)


ASIDES: Sequence[Callable[[Patch], None]] = (
    one_holds_up_all,
    one_mark,
    marks_forgotten,
    unread_forgotten,
    marks_for_ever,
    marks_stand_still,
    mark_too_late,
    others_overtake,
    cancelled_at_once,
    late_requests_count,
    requests_by_the_mark,
    aside_moves_positions,
    afloat_aside_lost,
)
