"""The delays get more partitions while messages wait: nothing is lost, doubled, early, or out of order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from kafka_pubsub.errors import InvariantViolated
from tests.property.delays_world import LONGEST, MOST_SKEW, TIERS
from tests.property.growing_world import NEAR, GrowingWorld, Partition
from tests.property.growth_mutations import GROWTHS

#: So many steps has a schedule, and so long no router runs for the former partition in some of them.
STEPS, ASLEEP = 400, 100


class Schedule:
    """A long random schedule, during which partitions are added."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = GrowingWorld(in_step=self.chance(0.5), added=self.random.choice((1, 1, 2)))
        self.spread = self.random.choice((4, 20, NEAR))
        self.aborts = self.random.choice((0.04, 0.3, 0.3))
        self.asleep = ASLEEP if self.chance(0.4) else 0
        if self.asleep or self.chance(0.3):
            self.world.grow()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def run(self) -> None:
        steps: list[tuple[int, Callable[[Partition], object]]] = [
            (14, lambda part: self.publish()),
            (12, lambda part: self.world.pass_time(1)),
            (1, lambda part: self.world.pass_time(self.random.randrange(1, NEAR))),
            (2, lambda part: part.set_clock(self.random.randrange(-MOST_SKEW, MOST_SKEW))),
            (2, self.kill),
            (2, lambda part: part.end_transactions(abort=self.chance(0.5))),
            (2, self.hold),
            (2, lambda part: part.publish_cancel(-self.random.randrange(1, 9))),
            (2, lambda part: self.world.grow()),
            (6, lambda part: part.tick()),
            (6, lambda part: part.store_tick(answered=self.chance(0.95))),
            (29, lambda part: part.fetch(self.random.randrange(TIERS + 1), self.random.randrange(1, 9))),
            (20, self.transact),
        ]
        chosen = self.random.choices([step for _, step in steps], [weight for weight, _ in steps], k=STEPS)
        for step in chosen:
            self.asleep -= 1
            step(self.random.choice(self.world.parts))
        self.world.judge()

    def publish(self) -> None:
        state = self.random.choice(("open", "aborted")) if self.chance(0.06) else "committed"
        key = self.random.choice((0, 1, 1, len(self.world.parts) - 1))
        absolute, delay = self.chance(0.6), self.random.randrange(self.spread)
        if self.chance(0.1):
            absolute, delay = False, LONGEST
        self.world.publish(key, knows=self.chance(0.5), delay=delay, absolute=absolute, state=state)

    def hold(self, part: Partition) -> None:
        part.holding = not part.holding
        part.turns_after = self.random.choice((None, None, 0, 3))

    def kill(self, part: Partition) -> None:
        if self.runs(part):
            part.restart()

    def transact(self, part: Partition) -> None:
        if self.runs(part):
            end = self.random.random()
            outcome = (
                "aborted" if end < self.aborts else "unanswered" if end < self.aborts + 0.04 else "stored"
            )
            part.transact(self.random.choice((self.random.randrange(1, 9), 30)), outcome)

    def runs(self, part: Partition) -> bool:
        return part.number > 0 or self.asleep <= 0


def run_all(seeds: range) -> None:
    for seed in seeds:
        Schedule(seed).run()


def test_partitions_are_added_while_messages_wait() -> None:
    run_all(range(25))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", GROWTHS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_of_growth_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, InvariantViolated)):
        run_all(range(300))
