"""The rules of partitions that walk in step, each broken on purpose: the world must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from kafka_pubsub.delays.growth import ALONE, Growth, Step
from kafka_pubsub.delays.progress import IngestProgress
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.values import Key, Move, Waiting
from tests.property.growing_world import GrowingWorld

__all__ = ["GROWTHS"]

Patch = pytest.MonkeyPatch
Commits = Sequence[IngestProgress | None]


def change_step(patch: Patch, change: Callable[[int, Commits, Step], Step]) -> None:
    """Lets the partitions do other steps."""
    real = Growth.step

    def step(self: Growth, partition: int, commits: Commits) -> Step:
        return change(partition, commits, real(self, partition, commits))

    patch.setattr(Growth, "step", step)


def change_commits(patch: Patch, change: Callable[[IngestProgress], IngestProgress]) -> None:
    """Lets the partitions read other commits of each other."""
    real = Growth.step

    def step(self: Growth, partition: int, commits: Commits) -> Step:
        return real(self, partition, [None if each is None else change(each) for each in commits])

    patch.setattr(Growth, "step", step)


def former_goes_on(patch: Patch) -> None:
    """Only the added partition waits."""
    change_step(patch, lambda number, commits, step: step if number else step._replace(only_before=1 << 63))


def added_goes_on(patch: Patch) -> None:
    """Only the former partition waits."""
    change_step(patch, lambda number, commits, step: step._replace(only_before=1 << 63) if number else step)


def by_what_is_home(patch: Patch) -> None:
    """Messages that the other partition hasn't read yet don't count."""
    change_commits(patch, lambda said: said._replace(reached=1 << 63))


def by_what_was_read(patch: Patch) -> None:
    """Messages that the other partition has read, and that aren't home, don't count."""
    change_commits(patch, lambda said: said._replace(home_before=1 << 63))


def equal_times_together(patch: Patch) -> None:
    """Of equal times the added partition's message may be first."""
    change_step(
        patch, lambda number, commits, step: step._replace(only_before=step.only_before + min(number, 1))
    )


def unknown_is_free(patch: Patch) -> None:
    """Where the other partition has committed nothing, nothing is waited for."""
    change_step(patch, lambda number, commits, step: ALONE if None in commits else step)


def no_tick_for_others(patch: Patch) -> None:
    """No log reaches the time for which another partition waits."""
    change_step(patch, lambda number, commits, step: step._replace(others_at=0))


def tick_at_equal_times(patch: Patch) -> None:
    """The former partition's tick is for the time of the other's message, not for one behind it."""
    change_step(
        patch, lambda number, commits, step: step if number else step._replace(others_at=step.others_at - 1)
    )


def heads_as_read(patch: Patch) -> None:
    """Messages in tiers that weren't read yet count as home."""
    real = Router._home_before

    def home_before(self: Router) -> int:
        with patch.context() as inner:
            inner.setattr(Router, "_bound", lambda self: (1 << 63, 0))
            return real(self)

    patch.setattr(Router, "_home_before", home_before)


def change_home_before(patch: Patch, without: str) -> None:
    """Commits when all is home but for the messages in a place where some wait."""

    def home_before(self: Router) -> int:
        places: dict[str, list[list[Key]]] = {
            "heads": [[each[:2] for each in self._heads]],
            "memory": [[each[:2] for each in self._memory.heap]],
            "aside": [[each[:2] for each in some] for some in self._memory.aside.values()],
        }
        lists = [some for place, found in places.items() if place != without for some in found if some]
        return max(0, min(self._bound(), *(min(some) for some in lists), (1 << 63, 0))[0])

    patch.setattr(Router, "_home_before", home_before)


def heads_left_out(patch: Patch) -> None:
    """Messages that came in, or are at the head of a tier, count as home."""
    change_home_before(patch, "heads")


def memory_left_out(patch: Patch) -> None:
    """Messages that wait in memory count as home."""
    change_home_before(patch, "memory")


def aside_left_out(patch: Patch) -> None:
    """Messages that are set aside for their home count as home."""
    change_home_before(patch, "aside")


def as_decided(patch: Patch) -> None:
    """The other router's decisions count, stored or not."""

    def committed(self: GrowingWorld, number: int) -> IngestProgress | None:
        said = self.parts[number].router._progress_of(0, 0)
        return said if isinstance(said, IngestProgress) else None

    patch.setattr(GrowingWorld, "_committed", committed)


def over_by_ingest(patch: Patch) -> None:
    """The growth is over when ingest was handled, whatever waits in tiers."""
    real = Growth.is_drained
    patch.setattr(Growth, "is_drained", lambda self, number, ingest, waiting: real(self, number, ingest, ()))


def over_by_tiers(patch: Patch) -> None:
    """The growth is over when the tiers are empty, whatever of ingest wasn't handled or rests in memory."""
    real = Growth.is_drained

    def is_drained(self: Growth, partition: int, ingest: int, waiting: Iterable[int]) -> bool:
        return real(self, partition, 1 << 63, waiting)

    patch.setattr(Growth, "is_drained", is_drained)


def due_on_arrival_goes_on(patch: Patch) -> None:
    """A message that is due as it comes in, or leaves its last tier, doesn't wait for the other partition."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        with patch.context() as inner:
            inner.setattr(self, "only_before", 1 << 63)
            real(self, source, message, moves)

    patch.setattr(Router, "_handle", handle)


GROWTHS = (
    former_goes_on,
    added_goes_on,
    by_what_is_home,
    by_what_was_read,
    equal_times_together,
    unknown_is_free,
    no_tick_for_others,
    tick_at_equal_times,
    heads_as_read,
    heads_left_out,
    memory_left_out,
    aside_left_out,
    as_decided,
    over_by_ingest,
    over_by_tiers,
    due_on_arrival_goes_on,
)
