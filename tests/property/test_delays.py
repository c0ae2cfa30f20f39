"""Delayed messages come home once, in order, never early, by the tiers of their binary digits: whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_pubsub.delays.layout import longest, path, tier_topic, tiers_of
from kafka_pubsub.delays.router import ASIDE, Router
from kafka_pubsub.errors import InvariantViolated
from tests.property.delays_mutations import MUTATIONS
from tests.property.delays_world import LITTLE_ROOM, LONGEST, MOST_SKEW, TIERS, DelayWorld

#: A publisher's clock may be right while a broker's is wrong: such a message still fits the tiers.
NEAR = 40
STATES = ("committed", "committed", "open", "aborted")
OUTCOMES = ("stored", "stored", "stored", "aborted", "unanswered")


class Delays(RuleBasedStateMachine):
    """Any order of publishing, reading, ticks, transactions, restarts and steps of the clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.world = DelayWorld()

    @initialize(in_step=st.booleans(), room=st.sampled_from((ASIDE, LITTLE_ROOM)))
    def begin(self, in_step: bool, room: int) -> None:
        self.world = DelayWorld(in_step=in_step, room=room)

    @rule(
        delay=st.one_of(st.integers(0, 5), st.integers(0, LONGEST)),
        absolute=st.booleans(),
        state=st.sampled_from(STATES),
    )
    def publish(self, delay: int, absolute: bool, state: str) -> None:
        if absolute:
            self.world.publish_at(self.world.now + min(delay, NEAR) - 2, state)
        else:
            self.world.publish_after(delay, state)

    @rule(abort=st.booleans())
    def end_transactions(self, abort: bool) -> None:
        self.world.end_transactions(abort=abort)

    @rule(choice=st.integers(0, 50), wrong=st.sampled_from((0, 0, 0, 1, -1)))
    def cancel(self, choice: int, wrong: int) -> None:
        self.world.publish_cancel(choice, wrong)

    @rule()
    def stray(self) -> None:
        self.world.publish_stray()

    @rule(tier=st.integers(0, TIERS - 1))
    def stray_in_tier(self, tier: int) -> None:
        self.world.write_stray(tier)

    @rule(by=st.one_of(st.integers(1, 3), st.integers(1, 60)))
    def time_passes(self, by: int) -> None:
        self.world.now += by

    @rule(skew=st.integers(-MOST_SKEW, MOST_SKEW))
    def clock_steps(self, skew: int) -> None:
        self.world.set_clock(skew)

    @rule(unstamped=st.booleans())
    def set_stamps(self, unstamped: bool) -> None:
        self.world.unstamped = unstamped and not self.world.in_step

    @rule()
    def late_tick(self) -> None:
        self.world.write_tick()

    @rule(answered=st.booleans())
    def store_tick(self, answered: bool) -> None:
        self.world.store_tick(answered=answered)

    @rule()
    def lose_tick(self) -> None:
        self.world.lose_tick()

    @rule()
    def kill(self) -> None:
        self.world.restart()

    @rule(holding=st.booleans(), turns_after=st.one_of(st.none(), st.integers(0, 3)))
    def hold(self, holding: bool, turns_after: int | None) -> None:
        self.world.holding, self.world.turns_after = holding, turns_after

    @rule(source=st.integers(0, TIERS), most=st.integers(1, 9))
    def fetch(self, source: int, most: int) -> None:
        self.world.fetch(source, most)

    @rule()
    def tick(self) -> None:
        self.world.tick()

    @rule(most=st.integers(1, 9), outcome=st.sampled_from(OUTCOMES))
    def transact(self, most: int, outcome: str) -> None:
        self.world.transact(most, outcome)

    @invariant()
    def check(self) -> None:
        self.world.router.check()

    def teardown(self) -> None:
        self.world.judge()


TestDelays = Delays.TestCase


def publish_one(world: DelayWorld, random: Random) -> None:
    """Publishes a message, now and then in a transaction that stays open or is aborted."""
    delay = random.choice((0, 0, random.randrange(4), random.randrange(NEAR)))
    state = random.choice(STATES) if random.random() < 0.1 else "committed"
    if random.random() < 0.6:
        world.publish_after(delay, state)
    else:
        world.publish_at(world.now + delay - 2, state)


def run(seed: int) -> None:
    """A long random schedule, denser in the rare events than Hypothesis's."""
    random = Random(seed)
    world = DelayWorld(in_step=random.random() < 0.4, room=random.choice((ASIDE, ASIDE, LITTLE_ROOM)))
    changes_stamps = not world.in_step and random.random() < 0.5

    def publish() -> None:
        publish_one(world, random)

    def cancel() -> None:
        world.publish_cancel(-random.randrange(1, 9), random.choice((0, 0, 0, 0, 1)))

    def pass_time(most: int) -> None:
        world.now += random.randrange(1, most)

    def skew() -> None:
        world.set_clock(random.choice((0, -MOST_SKEW, MOST_SKEW, random.randrange(-MOST_SKEW, MOST_SKEW))))

    def set_stamps() -> None:
        world.unstamped = changes_stamps and not world.unstamped

    def store_tick() -> None:
        world.store_tick(answered=random.random() < 0.95)

    def transact() -> None:
        outcome = random.random()
        end = "aborted" if outcome < 0.03 else "unanswered" if outcome < 0.06 else "stored"
        world.transact(random.choice((random.randrange(1, 9), 30)), end)

    def hold() -> None:
        world.holding = not world.holding
        world.turns_after = random.choice((None, 0, 1, 3))

    steps: list[tuple[int, Callable[[], object]]] = [
        (15, publish),
        (6, cancel),
        (10, lambda: pass_time(2)),
        (1, lambda: pass_time(40)),
        (2, skew),
        (3, world.restart),
        (1, world.write_tick),
        (7, world.tick),
        (6, store_tick),
        (1, world.lose_tick),
        (1, set_stamps),
        (2, lambda: world.end_transactions(abort=random.random() < 0.5)),
        (2, hold),
        (1, lambda: world.write_stray(random.randrange(TIERS))),
        (40, lambda: world.fetch(random.randrange(TIERS + 1), random.randrange(1, 9))),
        (20, transact),
    ]
    for step in random.choices([step for _, step in steps], [weight for weight, _ in steps], k=400):
        step()
    world.judge()


def run_all(seeds: range) -> None:
    for seed in seeds:
        run(seed)


def test_long_schedules() -> None:
    run_all(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    monkeypatch.setattr(Router, "check", lambda self: None)  # the consequence must show
    with pytest.raises((AssertionError, InvariantViolated, IndexError, KeyError)):
        run_all(range(500))


@given(st.integers(0, 2**28 - 1))
def test_the_path_is_the_binary_digits_largest_first(seconds: int) -> None:
    tiers = path(seconds)
    assert sum(2**tier for tier in tiers) == seconds
    assert list(tiers) == sorted(set(tiers), reverse=True)
    assert len(tiers) == seconds.bit_count()


@given(st.integers(1, 28), st.sets(st.integers(0, 40)))
def test_the_tiers_are_counted_up_to_the_first_that_is_missing(tiers: int, others: set[int]) -> None:
    names = ["orders", "_kafka_pubsub.delay.in", *(tier_topic(number) for number in range(tiers))]
    names += [tier_topic(number) for number in others if number != tiers]
    assert tiers_of(names) == tiers
    assert longest(tiers) == 2**tiers - 1
