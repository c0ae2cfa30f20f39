"""Delayed messages come home once, in order, never early, by the tiers of their binary digits: whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_pubsub.core.delays.layout import longest, path, tier_topic, tiers_of
from kafka_pubsub.core.delays.progress import (
    IngestProgress,
    Progress,
    parse_ingest,
    parse_tier,
    writer_of,
)
from kafka_pubsub.core.delays.router import Router
from kafka_pubsub.errors import FailedPrecondition, InvariantViolated
from tests.property.delays_mutations import MUTATIONS
from tests.property.delays_world import LONGEST, TIERS, DelayWorld

OUTCOMES = ("stored", "stored", "stored", "aborted", "unanswered")


class Delays(RuleBasedStateMachine):
    """Any order of publishing, reading, ticks, transactions, restarts and steps of the clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.world = DelayWorld()

    @rule(delay=st.one_of(st.integers(0, 5), st.integers(0, LONGEST)), absolute=st.booleans())
    def publish(self, delay: int, absolute: bool) -> None:
        if absolute:
            self.world.publish_at(self.world.now + min(delay, LONGEST - 20) - 2)
        else:
            self.world.publish_after(delay)

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

    @rule(skew=st.integers(-6, 6))
    def clock_steps(self, skew: int) -> None:
        self.world.skew = skew

    @rule(skew=st.integers(-6, 6))
    def late_tick(self, skew: int) -> None:
        self.world.write_tick(self.world.now + skew)

    @rule(skew=st.integers(-6, 6))
    def make_tick(self, skew: int) -> None:
        self.world.make_tick(self.world.now + skew)

    @rule()
    def store_tick(self) -> None:
        self.world.store_tick()

    @rule()
    def kill(self) -> None:
        self.world.restart()

    @rule(holding=st.booleans())
    def hold(self, holding: bool) -> None:
        self.world.holding = holding

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


def run(seed: int) -> None:
    """One long random schedule, denser in what matters than Hypothesis's."""
    random, world = Random(seed), DelayWorld()

    def publish() -> None:
        delay = random.choice((0, 0, random.randrange(4), random.randrange(LONGEST - 20)))
        if random.random() < 0.6:
            world.publish_after(delay)
        else:
            world.publish_at(world.now + delay - 2)

    def cancel() -> None:
        world.publish_cancel(-random.randrange(1, 9), random.choice((0, 0, 0, 0, 1)))

    def pass_time(most: int) -> None:
        world.now += random.randrange(1, most)

    def skew() -> None:
        world.skew = random.randrange(-6, 7)

    def transact() -> None:
        outcome = random.random()
        end = "aborted" if outcome < 0.03 else "unanswered" if outcome < 0.06 else "stored"
        world.transact(random.randrange(1, 9), end)

    def hold() -> None:
        world.holding = not world.holding

    steps: list[tuple[int, Callable[[], object]]] = [
        (15, publish),
        (6, cancel),
        (10, lambda: pass_time(2)),
        (1, lambda: pass_time(40)),
        (2, skew),
        (3, world.restart),
        (2, lambda: world.write_tick(world.now + random.randrange(-6, 7))),
        (7, world.tick),
        (2, lambda: world.make_tick(world.now + random.randrange(-6, 7))),
        (2, world.store_tick),
        (1, hold),
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


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    monkeypatch.setattr(Router, "check", lambda self: None)  # what comes of it must show
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


numbers = st.integers(0, 2**62)
keys = st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62))


@given(numbers, numbers, keys, numbers, st.text("abcz-0123456789", max_size=40))
def test_progress_comes_back_from_its_text(
    position: int, handled: int, mark: tuple[int, int], time: int, writer: str
) -> None:
    said = IngestProgress(position, handled, mark, time)
    assert parse_ingest(position, said.text(writer)) == said
    assert writer_of(position, said.text(writer)) == (writer or None)
    assert parse_tier(position, Progress(position, handled).text()) == Progress(position, handled)
    assert len(said.text(writer)) < 4000


@given(numbers, numbers, st.integers(0, 200), st.characters(codec="ascii"))
def test_damaged_progress_is_refused(position: int, handled: int, at: int, other: str) -> None:
    text = IngestProgress(position, handled, (5, 7), 9).text("writer")
    at %= len(text)
    damaged = text[:at] + other + text[at + 1 :]
    if damaged != text:
        with pytest.raises(FailedPrecondition):
            parse_ingest(position, damaged)
    with pytest.raises(FailedPrecondition):
        parse_ingest(position + 1, text)


def test_an_offset_without_a_text_counts_as_it_stands() -> None:
    assert parse_ingest(7, "") == IngestProgress(7, 7)
    assert parse_tier(7, "") == Progress(7, 7)
    assert writer_of(7, "") is None
