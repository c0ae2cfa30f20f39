"""The rules of when a message comes in and is due, each broken on purpose; `delays_mutations.py` has the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.delays.ingest import Ingest
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.ticks import Ticks
from kafka_pubsub.delays.values import Came, Move, Tick
from tests.property.delays_world import DelayWorld

__all__ = ["ARRIVALS"]

Patch = pytest.MonkeyPatch


def uncommitted(patch: Patch) -> None:
    """The stamps of aborted records count: a router reads uncommitted records."""
    real = DelayWorld.fetch

    def fetch(self: DelayWorld, source: int, most: int) -> bool:
        aborted, self.aborted = self.aborted, set()
        before = {each for each in aborted if isinstance(self.ingest[each], Came)}
        records = list(self.ingest)
        for offset in before:
            self.ingest[offset] = Tick(offset, self.ingest[offset].stamp)
        found = real(self, source, most)
        self.ingest, self.aborted = records, aborted
        return found

    patch.setattr(DelayWorld, "fetch", fetch)


def ask_on_its_way(patch: Patch) -> None:
    """A tick is wanted although another is on its way."""
    real = Ticks.next_at

    def next_at(self: Ticks, key: int | None) -> int | None:
        asked, self._asked = self._asked, None
        at = real(self, key)
        self._asked = asked
        return at

    patch.setattr(Ticks, "next_at", next_at)


def cut_short(patch: Patch) -> None:
    """A message that is longer than all tiers is due when these are passed."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        real(self, message)
        last = self.arrived[-1]
        if last.home and last.target < 0:
            most = (1 << self._tiers) * self._unit - 1
            self.arrived[-1] = last._replace(due=min(last.due, self.time + most))

    patch.setattr(Ingest, "_arrive", arrive)


def long_is_dead(patch: Patch) -> None:
    """A message that is longer than all tiers is a dead letter."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        real(self, message)
        last = self.arrived[-1]
        if last.due - self.time >= (1 << self._tiers) * self._unit:
            self.arrived[-1] = last._replace(home=None, left=0)

    patch.setattr(Ingest, "_arrive", arrive)


def before_it_came(patch: Patch) -> None:
    """A message whose time has passed when it comes in is due at that time, not at once."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        real(self, message)
        last = self.arrived[-1]
        if message.due is not None and message.target < 0:
            self.arrived[-1] = last._replace(due=min(last.due, message.due))

    patch.setattr(Ingest, "_arrive", arrive)


def beyond_time(patch: Patch) -> None:
    """A due message is handled by the reckoned clock, before the log has reached that time."""
    real = Router.take

    def take(self: Router, *args: Any, **kwargs: Any) -> list[Move]:
        time, self.ingest.time = self.ingest.time, self.ingest.time + 2
        moves = real(self, *args, **kwargs)
        self.ingest.time = time
        return moves

    patch.setattr(Router, "take", take)


ARRIVALS: Sequence[Callable[[Patch], None]] = (
    uncommitted,
    ask_on_its_way,
    cut_short,
    long_is_dead,
    before_it_came,
    beyond_time,
)
