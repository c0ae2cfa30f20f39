"""The fetcher's walks: it calls quick callbacks itself, and is relieved when one takes long (`inline` has the theory).

Rules
1. Whoever decides here holds the engine's core lock; nobody holds it while a callback runs.
2. A walk ends once: by its own thread, or by a take-over, which tells what that thread can't tell any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_pubsub.client.crews import Inline
from kafka_pubsub.client.inline import LEFT, InlineHolder, Pace, Walk
from kafka_pubsub.core.events import Passed, Record, Verdict

if TYPE_CHECKING:
    from kafka_pubsub.client.engine import Engine

__all__ = ["LOOK", "Walks"]

#: Seconds after which a callback that the fetcher called itself is found to take long.
LOOK = 0.05


class Walks:
    """Inline walking of one engine."""

    def __init__(self, engine: Engine, *, ordered: bool) -> None:
        self.pace = Pace()
        #: What the fetcher walks through now.
        self.walk: Walk | None = None
        self._engine = engine
        self._ordered = ordered

    def limit(self, now: float) -> int:
        """How many records to read for a walk; 0: none."""
        return 0 if self._engine.coordinator.seat is None else self.pace.limit(now)

    def try_walk(self, batches: Mapping[int, Sequence[Record]], count: int) -> bool | None:
        """Calls the callbacks; False if another thread is the fetcher now, None if the runner must have them."""
        engine = self._engine
        with engine.core:
            engine.look_alive(engine.clock())
            engine.take_posted()  # in the order of the reads
            seat = engine.coordinator.seat
            if seat is None or not engine.coordinator.inline(len(batches)):
                self.pace.slow(engine.clock())
                return None
            walk = self.walk = self._begin(batches)
            seat.lend(True)
        return self._go(walk, seat, count)

    def _begin(self, batches: Mapping[int, Sequence[Record]]) -> Walk:
        engine = self._engine
        leases = engine.coordinator.fetched(batches, engine.clock(), inline=True)
        reserved = engine.coordinator.reserve(int(LEFT * sum(len(lease.records) for lease in leases)))
        spare = 1 + reserved // max(1, len(leases))  # its own lease, and a share of what is reserved
        return Walk([InlineHolder(lease, engine, ordered=self._ordered, spare=spare) for lease in leases])

    def _go(self, walk: Walk, seat: Inline, count: int) -> bool:
        engine = self._engine
        started, left = engine.clock(), 0
        while walk.holders:
            told = walk.holders[0].pass_through(seat.callback)
            with engine.core:
                if isinstance(told, Passed) and not walk.over:  # else whoever took over has told it
                    left += sum(release.verdict is Verdict.KEPT for release in told.left)
                    left += len(told.lease.records) - told.reached
                    self._tell(told)
                elif told is not None and not isinstance(told, Passed):
                    engine.released(told)
                if walk.over:
                    return False
                walk.holders.popleft()
        with engine.core:
            if walk.over:
                return False
            self.walk = None
            engine.coordinator.reserve(0)
            seat.lend(False)
            now = engine.clock()
            self.pace.walked(count, left, now - started, now)
            engine.step(now)
        return True

    def _tell(self, passed: Passed) -> None:
        engine = self._engine
        engine.take_asks(now := engine.clock())  # those of the callbacks that it tells of
        engine.coordinator.passed(passed, now)

    def stands(self, now: float) -> bool:
        """Whether a walk is under way whose callback, or which as a whole, takes long."""
        return self.walk is not None and self.walk.stands(now) >= LOOK

    def take_over(self) -> Walk | None:
        """Ends the walk that is under way, if any: its thread isn't the fetcher any more."""
        engine = self._engine
        walk, self.walk = self.walk, None
        seat = engine.coordinator.seat
        if walk is None or seat is None:
            return None
        walk.over = True
        now = engine.clock()
        for holder in walk.holders:
            if (passed := holder.take_over()) is not None:
                self._tell(passed)
        engine.coordinator.reserve(0)
        seat.lend(False)
        if walk.holders:  # else it is about to find that it is through
            seat.adopt(walk.holders[0], walk.thread)
        self.pace.slow(now)
        return walk
