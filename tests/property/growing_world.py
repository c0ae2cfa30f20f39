"""Partitions of the delays, of which all but one were added while messages wait there, and keys that move to them.

Each is a `DelayWorld` with the real router, leaders' clocks of its own, and restarts of its own. Publishers learn of
the growth one after the other. `judge` is the naive account: in each home the messages of a key are in the order of
their due times, then of their publishing, in whichever partition they were. Of equal times those in the former
partition are first: a publisher goes from there to an added one, and never back.
"""

from __future__ import annotations

from itertools import product

from kafka_pubsub.delays.growth import ALONE, Growth, Step
from kafka_pubsub.delays.progress import IngestProgress, Progress, parse_ingest, parse_tier
from kafka_pubsub.delays.router import ASIDE
from kafka_pubsub.delays.values import TO_HOME, Move, Waiting
from tests.property.delays_world import MOMENT, MOST_SKEW, PACE, TIERS, UNIT, DelayWorld, home_of

__all__ = ["NEAR", "GrowingWorld", "Partition"]

#: A message that is due within this time fits the tiers, though clocks differ.
NEAR = 40


class Partition(DelayWorld):
    """A partition, which walks in step with others."""

    def __init__(self, number: int, together: GrowingWorld, *, in_step: bool, room: int) -> None:
        self.number, self.together = number, together
        # By offset: the key, and the number among all that was published.
        self.keys: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        super().__init__(in_step=in_step, room=room)
        # The part that it waits for may be late as well.
        self.moment = 2 * MOMENT + (0 if in_step else PACE.beat)

    def _publish(self, due: int | None, delay: int | None, state: str) -> None:
        self.numbers[len(self.ingest)] = self.together.count
        super()._publish(due, delay, state)

    def transact(self, most: int, outcome: str = "stored") -> bool:
        self.router.only_before = self.together.step(self.number).only_before
        growing = self.together.growth is not None and not self.together.is_over
        self.router.shares = self.shares if growing else None
        return super().transact(most, outcome)

    def shares(self, message: Waiting) -> bool:
        """Whether messages of its key may be in another partition: key 0 stays in the former one."""
        return self.number > 0 or self.keys[message.offset] > 0

    def heal(self) -> None:
        """All goes well again here."""
        self.holding = self.unstamped = False
        self.turns_after, self.skew = None, 0
        self.end_transactions(abort=False)
        self.healed = self.now

    def go_on(self) -> bool:
        """Does all that can be done now; returns whether there was anything."""
        busy = sum(self.fetch(source, 100) for source in range(TIERS + 1)) > 0
        busy |= self.transact(100)
        busy |= self.tick()
        self.store_tick()
        return busy

    def settle(self) -> None:
        """Both have settled together."""

    def restart(self) -> None:
        """The router dies; the others go on before that is noticed, whatever this one has decided."""
        for other in self.together.parts:
            if other is not self and self in self.together.parts:
                for source in range(TIERS + 1):
                    other.fetch(source, 9)
                other.transact(5)
        super().restart()

    def tick(self) -> bool:
        self.router.others_at = self.together.step(self.number).others_at
        return super().tick()

    def _store(self, moves: list[Move], progress: dict[int, IngestProgress | Progress]) -> None:
        for to, message in moves:
            if to == TO_HOME:
                self.together.home.append((self.number, message.due, message.offset))
        super()._store(moves, progress)


class GrowingWorld:
    """The former partition and the added ones, the publishers, and the operator's call."""

    def __init__(self, *, in_step: bool, added: int = 1, room: int = ASIDE) -> None:
        self.count = 0
        #: None: the partition wasn't added yet; over: nothing waits in the former one any more.
        self.growth: Growth | None = None
        self.is_over = False
        # Messages that were due by then may be home already, by a clock that is ahead of those of the added partitions.
        self._grown_at = 0
        # The partition, due time and offset of the messages that are home, in the order in which they were written.
        self.home: list[tuple[int, int, int]] = []
        self.parts: list[Partition] = []
        self.parts = [Partition(number, self, in_step=in_step, room=room) for number in range(1 + added)]

    def pass_time(self, by: int) -> None:
        for part in self.parts:
            part.now += by

    def publish(self, key: int, *, knows: bool, delay: int, absolute: bool, state: str = "committed") -> None:
        """Publishes with a key that belongs to the partition of this number after the growth.

        `knows`: the publisher has learnt of the growth, as all have when the ends were noted.
        """
        grown = self.growth is not None and (knows or self.growth.ends is not None)
        part = self.parts[key if grown else 0]
        part.keys[len(part.ingest)] = key
        self.count += 1
        if absolute:
            part.publish_at(part.now + delay - 2, state)
        else:
            part.publish_after(delay, state)

    def grow(self) -> None:
        """The call does its next step, or looks whether the growth is over."""
        if self.growth is None:
            self.growth = Growth(1, len(self.parts))
            self._grown_at = 0 if self.parts[0].in_step else self.parts[0].router.time
        elif self.growth.ends is None:
            self.growth = self.growth._replace(ends=(len(self.parts[0].ingest),))
        elif not self.is_over:
            self.is_over = self._is_drained(self.growth)

    def _is_drained(self, growth: Growth) -> bool:
        former = self.parts[0]
        (position, _), *tiers = former.texts
        waiting = [
            each.offset
            for log, text in zip(former.tiers, tiers, strict=True)
            for each in log[parse_tier(*text).position :]
            if isinstance(each, Waiting)
        ]
        return growth.is_drained(0, position, waiting)

    def step(self, number: int) -> Step:
        """Returns what a router of this partition may do, by what it reads of the other one."""
        if self.growth is None or self.is_over:
            return ALONE
        return self.growth.step(number, [self._committed(each) for each in self.growth.others(number)])

    def _committed(self, number: int) -> IngestProgress | None:
        position, text = self.parts[number].texts[0]
        return parse_ingest(position, text) if text else None

    def settle(self) -> None:
        """All goes well again, until everything is home. Only then is the growth over."""
        for part in self.parts:
            part.heal()
        while self.growth is None or self.growth.ends is None:
            self.grow()
        for _ in range(UNIT * 2 ** (TIERS + 1) + (0 if self.parts[0].in_step else MOST_SKEW + 3 * PACE.beat)):
            busy = True
            while busy:
                busy = sum(part.go_on() for part in self.parts) > 0
            self.pass_time(1)
        self.grow()

    def judge(self) -> None:
        """Each partition as if it were alone, and the order of the keys that moved."""
        self.settle()
        assert self.is_over, "the growth is never over"
        for part in self.parts:
            part.judge()
        for key, home in product(range(1, len(self.parts)), (home_of(0), home_of(1))):
            order = [
                (due, number, self.parts[number].numbers[offset])
                for number, due, offset in self.home
                if self.parts[number].keys[offset] == key and home_of(offset) == home
                if number == 0 or due > self._grown_at
            ]
            assert order == sorted(order), f"a key that moved is out of order: {order}"
