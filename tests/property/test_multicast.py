"""Causal multicast on the sequencers alone: random schedules with crashes, and every rule broken on purpose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.multicast.values import Stage
from tests.property.multicast_losses import run_lossy
from tests.property.multicast_mutations import MUTATIONS, MUTATIONS_OF_LOSSES, NOTICED_IN_PLANS
from tests.property.multicast_oracle import run_beside_oracle
from tests.property.multicast_search import search
from tests.property.multicast_states import LARGE_PLANS, PLANS, Plan, explore
from tests.property.multicast_world import Topic, World, run
from tests.seeds import DEEP, of_the_day


@given(
    seed=st.integers(0, 2**32),
    topics=st.integers(1, 6),
    senders=st.integers(1, 5),
    messages=st.integers(1, 24),
)
def test_every_promise_holds_in_every_schedule(seed: int, topics: int, senders: int, messages: int) -> None:
    run(seed, topics=topics, senders=senders, messages=messages)


@given(
    seed=st.integers(0, 2**32),
    topics=st.integers(1, 6),
    senders=st.integers(1, 5),
    messages=st.integers(1, 24),
)
def test_a_home_holds_what_the_oracle_says_after_each_record(
    seed: int, topics: int, senders: int, messages: int
) -> None:
    run_beside_oracle(seed, topics=topics, senders=senders, messages=messages)


@given(
    seed=st.integers(0, 2**32),
    topics=st.integers(2, 6),
    senders=st.integers(1, 5),
    messages=st.integers(1, 24),
)
def test_every_promise_holds_when_inboxes_get_lost_and_topics_are_made_again(
    seed: int, topics: int, senders: int, messages: int
) -> None:
    run_lossy(seed, topics=topics, senders=senders, messages=messages)


def test_three_senders_and_three_topics_with_two_messages_each_and_crashes_between_all_steps() -> None:
    assert search(0, 500, 600) == 500


@pytest.mark.slow
def test_many_more_schedules_of_three_senders_and_three_topics() -> None:
    """A failure says which seed."""
    seeds = of_the_day(500)
    assert search(seeds.start, len(seeds), seconds=math.inf) == len(seeds)


@pytest.mark.parametrize("name", PLANS)
def test_every_schedule_of_a_plan_keeps_the_promises(name: str) -> None:
    assert explore(PLANS[name]) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_PLANS)
def test_every_schedule_of_a_large_plan_keeps_the_promises(name: str) -> None:
    assert explore(LARGE_PLANS[name], at_most=60_000 if DEEP else 21_000) > 20_000


def explore_all(plans: Mapping[str, Plan]) -> None:
    for plan in plans.values():
        explore(plan)


@pytest.mark.parametrize("mutation", NOTICED_IN_PLANS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_is_noticed_in_some_schedule_of_a_plan(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        explore_all(PLANS)


def run_many(count: int, play: Callable[..., None] = run) -> None:
    for seed in range(count):
        play(seed, topics=3 + seed % 2, crashes=0.1 * (seed % 3))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        run_many(3000)


@pytest.mark.parametrize("mutation", MUTATIONS_OF_LOSSES, ids=lambda mutation: mutation.__name__)
def test_a_broken_rule_of_losses_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        run_many(3000, run_lossy)


def test_two_messages_to_the_same_topics_come_in_one_order_in_every_interleaving() -> None:
    """All orders in which two inboxes can be read, while two messages were staged in opposite orders."""
    ends = set()
    for steps in itertools.product("ab", repeat=8):
        world = World(0, topics=0, messages=0, crashes=0)
        world.topics = {name: Topic(name) for name in "ab"}
        for sender, name in enumerate(("one", "two")):
            world.add(sender, Stage(name, ("a", "b")))
        # The second topic got them the other way round.
        world.topics["b"].inbox.reverse()
        for step in steps:
            topic = world.topics[step]
            if topic.sequencer.checkpoint.position < len(topic.inbox):
                world.take(topic)
        world.play()
        orders = {tuple(each.message for each in topic.home) for topic in world.topics.values()}
        assert len(orders) == 1
        ends |= orders
    assert ends <= {("one", "two"), ("two", "one")}
