"""Two partitions of the delays, of which one was added while messages wait in the other, and a key that moves there.

Each is a `DelayWorld` with the real router, leaders' clocks of its own, and restarts of its own. Publishers learn of the
growth one after the other. `judge` is the naive account: in each home the messages of a key are in the order of their due
times, then of their publishing, in whichever partition they were. Of equal times those in the former partition are first:
a publisher goes from there to the added one, and never back.
"""

from __future__ import annotations

from random import Random

from kafka_pubsub.delays.growth import ALONE, Growth, Step
from kafka_pubsub.delays.progress import IngestProgress, Progress, parse_ingest, parse_tier
from kafka_pubsub.delays.router import ASIDE
from kafka_pubsub.delays.values import TO_HOME, Move, Waiting
from tests.property.delays_world import LONGEST, MOMENT, MOST_SKEW, PACE, TIERS, UNIT, DelayWorld, home_of

__all__ = ["GrowingWorld", "run_growth"]

#: The key that stays in the former partition, and that which moves to the added one.
STAYS, MOVES = "stays", "moves"
#: A message that is due within this time fits the tiers, though clocks differ.
NEAR = 40


class Partition(DelayWorld):
    """A partition, which walks in step with the other one."""

    def __init__(self, number: int, together: GrowingWorld, *, in_step: bool, room: int) -> None:
        self.number, self.together = number, together
        # By offset: the key, and the number among all that was published.
        self.keys: dict[int, str] = {}
        self.numbers: dict[int, int] = {}
        super().__init__(in_step=in_step, room=room)
        # What it waits for may be late as well.
        self.moment = 2 * MOMENT + (0 if in_step else PACE.beat)

    def _publish(self, due: int | None, delay: int | None, state: str) -> None:
        self.numbers[len(self.ingest)] = self.together.count
        super()._publish(due, delay, state)

    def transact(self, most: int, outcome: str = "stored") -> bool:
        self.router.only_before = self.together.step(self.number).only_before
        return super().transact(most, outcome)

    def restart(self) -> None:
        """The router dies; the other one goes on before that is noticed, whatever this one has decided."""
        if self.number < len(self.together.parts):
            self.together.go_on_beside(self.number)
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
    """The former and the added partition, the publishers, and the operator's call."""

    def __init__(self, *, in_step: bool, room: int = ASIDE) -> None:
        self.count = 0
        #: None: the partition wasn't added yet; over: nothing waits in the former one any more.
        self.growth: Growth | None = None
        self.is_over = False
        # What was due by then may be home already, by a clock that is ahead of that of the added partition.
        self._grown_at = 0
        # The partition, due time and offset of what is home, in the order in which that was written.
        self.home: list[tuple[int, int, int]] = []
        self.parts: list[Partition] = []
        self.parts = [Partition(number, self, in_step=in_step, room=room) for number in range(2)]

    def pass_time(self, by: int) -> None:
        for part in self.parts:
            part.now += by

    def publish(self, key: str, *, knows: bool, delay: int, absolute: bool, state: str = "committed") -> None:
        """Publishes; `knows`: the publisher has learnt of the growth, as all have when the ends were noted."""
        moved = key == MOVES and self.growth is not None and (knows or self.growth.ends is not None)
        part = self.parts[moved]
        part.keys[len(part.ingest)] = key
        self.count += 1
        if absolute:
            part.publish_at(part.now + delay - 2, state)
        else:
            part.publish_after(delay, state)

    def grow(self) -> None:
        """The call does its next step, or looks whether the growth is over."""
        if self.growth is None:
            self.growth = Growth(1, 2)
            self._grown_at = 0 if self.parts[0].in_step else self.parts[0].router.time
        elif self.growth.ends is None:
            self.growth = self.growth._replace(ends=(len(self.parts[0].ingest),))
        elif not self.is_over:
            self.is_over = self._is_drained(self.growth)

    def go_on_beside(self, number: int) -> None:
        """The router of the other partition handles something, in the middle of this one's transaction."""
        self.parts[1 - number].transact(5)

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
        """All goes well again, until everything is home."""
        for part in self.parts:
            part.holding = part.unstamped = False
            part.turns_after, part.skew = None, 0
            part.end_transactions(abort=False)
            part.healed = part.healed or part.now
        for _ in range(MOST_SKEW + UNIT * 2 ** (TIERS + 1) + 3 * PACE.beat):
            self.grow()
            busy = True
            while busy:
                busy = False
                for part in self.parts:
                    busy |= sum(part.fetch(source, 100) for source in range(TIERS + 1)) > 0
                    busy |= part.transact(100)
                    busy |= part.tick()
                    part.store_tick()
            self.pass_time(1)

    def judge(self) -> None:
        """Each partition as if it were alone, and the order of the key that moved."""
        self.settle()
        assert self.is_over, "the growth is never over"
        for part in self.parts:
            part.judge()
        for home in (home_of(0), home_of(1)):
            keys = [
                (due, number, self.parts[number].numbers[offset])
                for number, due, offset in self.home
                if self.parts[number].keys[offset] == MOVES and home_of(offset) == home
                if number == 0 or due > self._grown_at
            ]
            assert keys == sorted(keys), f"the key that moved is out of order: {keys}"


def run_growth(seed: int, steps: int = 400) -> None:
    """A long random schedule, during which the partition is added."""
    random = Random(seed)
    world = GrowingWorld(in_step=random.random() < 0.5)
    spread = random.choice((4, 20, NEAR))
    if random.random() < 0.3:
        world.grow()
    for _ in range(steps):
        part = random.choice(world.parts)
        chance = random.random()
        if chance < 0.14:
            state = random.choice(("open", "aborted")) if random.random() < 0.06 else "committed"
            key = random.choice((STAYS, MOVES, MOVES))
            absolute, delay = random.random() < 0.6, random.randrange(spread)
            if random.random() < 0.1:
                absolute, delay = False, LONGEST
            world.publish(key, knows=random.random() < 0.5, delay=delay, absolute=absolute, state=state)
        elif chance < 0.26:
            world.pass_time(1)
        elif chance < 0.27:
            world.pass_time(random.randrange(1, 40))
        elif chance < 0.29:
            part.set_clock(random.choice((0, -MOST_SKEW, MOST_SKEW, random.randrange(-MOST_SKEW, MOST_SKEW))))
        elif chance < 0.31:
            part.restart()
        elif chance < 0.33:
            part.end_transactions(abort=random.random() < 0.5)
        elif chance < 0.35:
            part.holding = not part.holding
            part.turns_after = random.choice((None, None, 0, 3))
        elif chance < 0.37:
            part.publish_cancel(-random.randrange(1, 9))
        elif chance < 0.39:
            world.grow()
        elif chance < 0.45:
            part.tick()
        elif chance < 0.51:
            part.store_tick(answered=random.random() < 0.95)
        elif chance < 0.80:
            part.fetch(random.randrange(TIERS + 1), random.randrange(1, 9))
        else:
            end = random.random()
            outcome = "aborted" if end < 0.04 else "unanswered" if end < 0.08 else "stored"
            part.transact(random.choice((random.randrange(1, 9), 30)), outcome)
    world.judge()
