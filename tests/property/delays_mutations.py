"""The rules of the delays, each broken on purpose: the world must notice.

They are the mutations of the protocol's model, and those of what the core adds to it: heads that weren't read yet, and
messages that are read twice because the next tick is far away.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_pubsub.core.delays import router
from kafka_pubsub.core.delays.ingest import Ingest
from kafka_pubsub.core.delays.progress import IngestProgress, Progress
from kafka_pubsub.core.delays.router import Router
from kafka_pubsub.core.delays.tier import Tier
from kafka_pubsub.core.delays.values import BEFORE_ALL, Came, Key, Move, Tick, Waiting

__all__ = ["MUTATIONS"]

Patch = pytest.MonkeyPatch


def own_clock(patch: Patch) -> None:
    """A message came in when its router read it, without a tick in the log."""
    real = Ingest.receive

    def receive(self: Ingest, records: Sequence[Came | Tick]) -> None:
        for record in records:
            real(self, [record])
            if isinstance(record, Came) and self._came:
                self.time += 1
                self._tick(Tick(record.offset, self.time, record.offset + 1))
                self.seek = None

    patch.setattr(Ingest, "receive", receive)


def whole_log(patch: Patch) -> None:
    """A tick dates everything before it, also what was stored after it was made."""
    real = Ingest._tick

    def tick(self: Ingest, tick: Tick) -> None:
        real(self, tick._replace(read=tick.offset))

    patch.setattr(Ingest, "_tick", tick)


def wall_clock(patch: Patch) -> None:
    """The next time of leaving counts from now, not from the scheduled time."""
    real = Router._hop

    def hop(self: Router, message: Waiting, moves: list[Move]) -> None:
        real(self, message._replace(at=self.time), moves)

    patch.setattr(Router, "_hop", hop)


def no_mark(patch: Patch) -> None:
    """After a restart all that is read again goes home again."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        mark, self.mark = self.mark, BEFORE_ALL
        real(self, source, message, moves)
        self.mark = max(self.mark, mark)

    patch.setattr(Router, "_handle", handle)


def forgotten_time(patch: Patch) -> None:
    """The time at the committed position isn't stored; a restart begins it at the mark."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        said = real(self, source, position)
        return said._replace(time=max(0, said.mark[0])) if isinstance(said, IngestProgress) else said

    patch.setattr(Router, "_progress_of", progress_of)


def position(patch: Patch) -> None:
    """Positions are committed as read, past what waits in memory."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        return real(self, source, self._next(source))

    patch.setattr(Router, "_progress_of", progress_of)


def largest_tier(patch: Patch) -> None:
    """At each hop the tiers are chosen anew, by what is left then."""
    real = Router._hop

    def hop(self: Router, message: Waiting, moves: list[Move]) -> None:
        left = max(1, (message.due - self.time) // self._unit)
        real(self, message._replace(left=left, at=self.time), moves)

    patch.setattr(Router, "_hop", hop)


def tiers_first(patch: Patch) -> None:
    """Of equal times the tiers go before memory and what came in, whatever the offset."""

    def first(head: tuple[Any, ...]) -> tuple[Any, ...]:
        return (head[0], -1, head[2]) if len(head) == 3 and head[2] else head

    patch.setattr(router, "heappush", lambda heap, head: heapq.heappush(heap, first(head)))
    patch.setattr(router, "heapreplace", lambda heap, head: heapq.heapreplace(heap, first(head)))


def steps_back(patch: Patch) -> None:
    """Time follows the last tick, not the highest."""
    real = Ingest._tick

    def tick(self: Ingest, tick: Tick) -> None:
        self.time = min(self.time, tick.time)
        real(self, tick)

    patch.setattr(Ingest, "_tick", tick)


def hop_again(patch: Patch) -> None:
    """What was handled and is read again hops again."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        if message.left:
            self._handled[source] = min(self._handled[source], message.position)
        real(self, source, message, moves)

    patch.setattr(Router, "_handle", handle)


def unread_heads(patch: Patch) -> None:
    """What wasn't read yet of a tier holds up nothing."""
    patch.setattr(Tier, "unknown", property(lambda self: False))


def tick_behind(patch: Patch) -> None:
    """Messages that are read once more came in at the time before their tick's."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        if not self._ahead:
            real(self, message)
            return
        time, self.time = self.time, self._stored_time
        real(self, message)
        self.time = time

    patch.setattr(Ingest, "_arrive", arrive)


def written_heads(patch: Patch) -> None:
    """What a transaction writes to an empty tier holds up nothing in that transaction."""
    real = Tier.write

    def write(self: Tier, key: Key) -> bool:
        real(self, key)
        return False

    patch.setattr(Tier, "write", write)


def low_key(patch: Patch) -> None:
    """A tier's unread head may be taken to come later than it does."""
    real = Tier.write

    def write(self: Tier, key: Key) -> bool:
        return real(self, (key[0] + 3, key[1]))

    patch.setattr(Tier, "write", write)


def cancel_when_due(patch: Patch) -> None:
    """A request to cancel may leave its last tier when its message is due."""
    real = Ingest._arrive

    def arrive(self: Ingest, message: Came) -> None:
        real(self, message)
        arrived = self.arrived[-1]
        if message.target >= 0 and arrived.due > self.time:
            left = min((arrived.due - self.time) // self._unit, (1 << self._tiers) - 1)
            self.arrived[-1] = arrived._replace(left=left)

    patch.setattr(Ingest, "_arrive", arrive)


def cancel_forgotten(patch: Patch) -> None:
    """Positions are committed past requests to cancel that wait in memory."""
    real = Router._progress_of

    def progress_of(self: Router, source: int, position: int) -> IngestProgress | Progress:
        requests = {each[4].position for each in self._memory if each[2] < 0 and each[3] == source}
        rest = [at for at in self._resting[source] if at not in requests]
        return real(self, source, min([self._next(source), *rest]))

    patch.setattr(Router, "_progress_of", progress_of)


def cancel_any(patch: Patch) -> None:
    """A request drops the next message, whichever that is."""
    real = Router._cancel

    def cancel(self: Router, key: Key, moves: list[Move]) -> None:
        found = [each[:2] for each in self._memory[:1]] + [each[:2] for each in self._heads[:1]]
        real(self, min(found, default=key), moves)

    patch.setattr(Router, "_cancel", cancel)


def held_in_memory_only(patch: Patch) -> None:
    """A message that is due when it leaves its tier goes home, though it may not."""
    real = Router._handle

    def handle(self: Router, source: int, message: Waiting, moves: list[Move]) -> None:
        self._holds = lambda message: False
        real(self, source, message, moves)

    patch.setattr(Router, "_handle", handle)


def held_are_home(patch: Patch) -> None:
    """What may not go home now counts as home after a restart."""
    real = Router._rest

    def rest(self: Router, source: int, message: Waiting) -> None:
        if self._holds(message):
            self.mark = max(self.mark, (message.due, message.offset))
        real(self, source, message)

    patch.setattr(Router, "_rest", rest)


def strays_counted(patch: Patch) -> None:
    """A record of a tier that another program wrote counts as one that the router wrote."""
    real = Tier.receive

    def receive(self: Tier, records: Sequence[Waiting]) -> None:
        new = [each for each in records if each.position >= max(self.read, self._until)]
        real(self, records)
        self._written -= sum(each.home is None for each in new)

    patch.setattr(Tier, "receive", receive)


MUTATIONS: Sequence[Callable[[Patch], None]] = (
    own_clock,
    whole_log,
    wall_clock,
    no_mark,
    forgotten_time,
    position,
    largest_tier,
    tiers_first,
    steps_back,
    hop_again,
    unread_heads,
    tick_behind,
    written_heads,
    low_key,
    cancel_when_due,
    cancel_forgotten,
    cancel_any,
    held_in_memory_only,
    held_are_home,
    strays_counted,
)
