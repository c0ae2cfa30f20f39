"""I9: the order between priorities and classes, whatever is read when, and whenever ends are asked for."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.merge import LaneMerge
from tests.property.lanes_mutations import MUTATIONS
from tests.property.lanes_world import BOUND, LaneWorld

LANES = [Lane(priority, durable) for priority in range(3) for durable in (True, False)]


class Lanes(RuleBasedStateMachine):
    """Any order of publishing, reading, questions, answers, choices and pauses."""

    keyed = False

    @initialize(
        lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=5, unique=True),
        bound=st.sampled_from((BOUND, BOUND, None)),
        copied=st.booleans(),
        skews=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    )
    def begin(self, lanes: list[Lane], bound: float | None, *, copied: bool, skews: list[int]) -> None:
        self.world = LaneWorld(lanes, keyed=self.keyed, bound=bound, copied=copied, skews=skews)

    def lane(self, at: int) -> Lane:
        return sorted(self.world.sides)[at % len(self.world.sides)]

    @rule(lane=st.sampled_from(LANES))
    def add(self, lane: Lane) -> None:
        self.world.add(lane)

    @rule(
        at=st.integers(0, 9),
        publisher=st.integers(-1, 2),
        number=st.integers(0, 9),
        key=st.sampled_from((None, 0, 1)),
        count=st.integers(1, 3),
    )
    def publish(self, at: int, publisher: int, number: int, key: int | None, count: int) -> None:
        for _ in range(count):
            self.world.publish(self.lane(at), publisher, number, key)

    @rule(at=st.integers(0, 9))
    def mark(self, at: int) -> None:
        self.world.mark(self.lane(at))

    @rule(by=st.integers(1, 2))
    def clock_goes_on(self, by: int) -> None:
        self.world.clock += by

    @rule(by=st.integers(1, 4))
    def clock_steps_back(self, by: int) -> None:
        self.world.step_back(by)

    @rule(by=st.sampled_from((0.01, 0.5, 1.0, 3.0, 5.0)))
    def time_passes(self, by: float) -> None:
        self.world.now += by

    @rule(at=st.integers(0, 9), gone=st.booleans())
    def leader(self, at: int, gone: bool) -> None:
        self.world.lose_leader(self.lane(at), gone=gone)

    @rule(at=st.integers(0, 9))
    def lose_tail(self, at: int) -> None:
        self.world.lose_tail(self.lane(at))

    @rule(at=st.integers(0, 9), paused=st.booleans())
    def pause(self, at: int, paused: bool) -> None:
        self.world.pause(self.lane(at), paused=paused)

    @rule(at=st.integers(0, 9), most=st.integers(1, 4), through=st.booleans())
    def fetch(self, at: int, most: int, *, through: bool) -> None:
        self.world.fetch(self.lane(at), most, through=through)

    @rule()
    def fetch_all(self) -> None:
        for lane in self.world.sides:
            self.world.fetch(lane, 9)

    @rule()
    def ask(self) -> None:
        self.world.ask()

    @rule()
    def answer(self) -> None:
        self.world.answer()

    @rule(most=st.integers(1, 12))
    def choose(self, most: int) -> None:
        self.world.choose(most)

    @rule()
    def put_back(self) -> None:
        self.world.put_back()

    @rule(at=st.integers(0, 9))
    def finish(self, at: int) -> None:
        self.world.finish(at)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "world"):
            self.world.merge.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


class KeyedLanes(Lanes):
    """The same with ordering keys: a lane's head is the first message whose key is free."""

    keyed = True


TestLanes = Lanes.TestCase
TestKeyedLanes = KeyedLanes.TestCase


class Schedule:
    """A long random schedule, denser in the rare events than Hypothesis's."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        lanes = random.sample(LANES, random.randrange(1, 6))
        bound = BOUND if random.random() < 0.9 else None
        keyed = random.random() < 0.3
        copied, skews = random.random() < 0.2, random.choice(((0,), (0,), (0, 3), (7, 0, 2)))
        self.world = LaneWorld(lanes, keyed=keyed, bound=bound, copied=copied, skews=skews)
        self.steps_back = random.random() < 0.2
        self.busy_top = random.random() < 0.6
        self.top = max(lane.priority for lane in lanes)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def lane(self) -> Lane:
        return self.random.choice(list(self.world.sides))

    def publish(self) -> None:
        random, world = self.random, self.world
        if self.chance(0.3):
            world.clock += 1
        if self.steps_back and self.chance(0.1):
            world.step_back(random.randrange(1, 4))
        lane = self.lane()
        if self.busy_top and self.chance(0.7):
            lane = random.choice([each for each in world.sides if each.priority == self.top])
        for _ in range(random.choice((1, 1, 1, 5))):
            key = random.choice((None, 0, 1, 2))
            world.publish(lane, random.randrange(-1, 3), random.randrange(1000), key)

    def pass_time(self) -> None:
        self.world.now += self.random.choice((0.0, 0.1, 0.1, 1.0, 1.0))

    def run(self) -> None:
        random, world = self.random, self.world
        steps: list[tuple[float, Callable[[], object]]] = [
            (25, self.publish),
            (1, lambda: world.mark(self.lane())),
            (8, self.pass_time),
            (0.5, lambda: world.pause(self.lane(), paused=self.chance(0.3))),
            (0.5, lambda: world.lose_leader(self.lane(), gone=self.chance(0.3))),
            (0.7, lambda: world.add(random.choice(LANES))),
            (0.5, lambda: world.lose_tail(self.lane())),
            (20, lambda: world.fetch(self.lane(), random.randrange(1, 5), through=self.chance(0.5))),
            (10, world.ask),
            (10, world.answer),
            (25, lambda: world.choose(random.choice((1, 1, 2, 12)))),
            (10, lambda: world.finish(random.randrange(9))),
            (0.5, world.put_back),
        ]
        for step in random.choices([step for _, step in steps], [weight for weight, _ in steps], k=500):
            step()
        world.settle()


def run_all(seeds: range) -> int:
    """Returns how many messages began as soon as they were read."""
    gone_through = 0
    for seed in seeds:
        schedule = Schedule(seed)
        schedule.run()
        gone_through += schedule.world.gone_through
    return gone_through


def test_long_schedules() -> None:
    assert run_all(range(100)) > 300


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    monkeypatch.setattr(LaneMerge, "check", lambda self: None)  # the consequence must show
    with pytest.raises((AssertionError, InvariantViolated, IndexError, KeyError)):
        run_all(range(400))
