"""The rules for handled and unwritten messages of a delay router, each broken on purpose, for `delays_mutations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kafka_pubsub.delays.memory import Memory
from kafka_pubsub.delays.progress import IngestProgress, Progress
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.tier import Tier
from kafka_pubsub.delays.unwritten import Unwritten
from kafka_pubsub.delays.values import BEFORE_ALL, Move, Waiting

__all__ = ["FLUSHES"]

Patch = pytest.MonkeyPatch


def afloat_lost(patch: Patch) -> None:
    """A message that rests in memory after it left a tier in which it wasn't written is written nowhere."""
    patch.setattr(Memory, "put_back", lambda self: {})


def put_back_behind(patch: Patch) -> None:
    """A message that comes back into a tier is written behind messages that came there later."""
    real = Tier.flush

    def flush(self: Tier, left: Sequence[Waiting]) -> Sequence[Waiting]:
        self.fresh.extend(left)
        return real(self, ())

    patch.setattr(Tier, "flush", flush)


def fresh_first(patch: Patch) -> None:
    """A message put into a tier goes before the tier's unread messages."""

    def head(self: Tier) -> Waiting | None:
        return self.buffer[0] if self.buffer else self.fresh[0] if self.fresh else None

    patch.setattr(Tier, "head", property(head))
    patch.setattr(
        Tier,
        "put",
        lambda self, message: self.fresh.append(message) or (len(self.fresh) == 1 and not self.buffer),
    )


def handled_before_written(patch: Patch) -> None:
    """A handled message that isn't written yet is committed as handled."""

    def progress_now(self: Router, source: int) -> IngestProgress | Progress:
        return self._progress_of(source, self._memory.lowest(source, self._next(source)))

    patch.setattr(Router, "_progress_now", progress_now)


def mark_waits(patch: Patch) -> None:
    """While something isn't written, nothing is committed: the mark stands still, too."""
    real = Router._progress_now

    def progress_now(self: Router, source: int) -> IngestProgress | Progress:
        mark = self.mark
        settled = self._settled[source]
        if self._unwritten and isinstance(settled, IngestProgress):
            self.mark = settled.mark
        found = real(self, source)
        self.mark = mark
        return found

    patch.setattr(Router, "_progress_now", progress_now)


def home_again(patch: Patch) -> None:
    """A message that is handled anew after a restart goes home again, whatever the mark."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        mark = self.mark
        if message.position >= self._handled[source]:
            self.mark = BEFORE_ALL
        real(self, source, message, moves)
        self.mark = max(self.mark, mark)

    patch.setattr(Router, "_handle", handle)


def never_written(patch: Patch) -> None:
    """Unwritten messages wait until there are many of them, however long that takes."""
    patch.setattr(Unwritten, "due_at", property(lambda self: None))
    patch.setattr(Unwritten, "is_due", lambda self, time: self._count >= 1000)


FLUSHES: Sequence[Callable[[Patch], None]] = (
    afloat_lost,
    put_back_behind,
    fresh_first,
    handled_before_written,
    mark_waits,
    home_again,
    never_written,
)
