"""The whole partition with a retry topic, over a small Kafka, by random schedules (`retry_world`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import split
from kafka_pubsub.subscribe.partition import commits, maintenance, retry_partition, retry_state
from kafka_pubsub.subscribe.partition.settings import Exhausted
from tests.property.retry_world import Plan, World
from tests.seeds import fixed, of_the_day

PLANS = {
    "everything": Plan(broken=True),
    "no_dead_letters": Plan(max_attempts=0, broken=True),
    "park": Plan(on_exhausted=Exhausted.PARK, nacks=0.5),
    "unordered": Plan(ordered=False),
    "one_attempt": Plan(max_attempts=1, nacks=0.3),
    "many_nacks": Plan(nacks=0.7, crashes=0.002),
    "stands_still": Plan(doubts=0.03, nacks=0.4),
    "clocks": Plan(clock_steps=0.03, nacks=0.5),
    "one_key": Plan(keys=(b"a",), messages=20),
    "forgotten": Plan(forgets=0.004, nacks=0.5, max_attempts=3),
}
#: Schedules of each plan, in the fast suite and in the slow suite.
FAST, SLOW = range(4), [*fixed(3, first=4), *of_the_day(3)]


def run(seed: int, plan: Plan, steps: int = 700) -> World:
    world = World(Random(seed), plan)
    try:
        world.run(steps)
    except Exception as error:
        tail = "\n".join(world.trace[-60:])
        raise AssertionError(f"seed {seed}: {error!r}\n{tail}") from error
    return world


#: Lives end only by messages that kill their process.
KILLERS = Plan(
    nacks=0.0, crashes=0.0, unknown=0.0, aborts=0.0, refusals=0.0, killers=frozenset({3, 11}), messages=16
)


@pytest.mark.parametrize("seed", range(15))
def test_only_the_messages_that_kill_are_dead_lettered(seed: int) -> None:
    world = run(seed, KILLERS, steps=1500)
    there = {record.offset() for record in world.main}
    assert world.dead.keys() == KILLERS.killers & there


@pytest.mark.parametrize(
    "seeds", [pytest.param(FAST, id="first"), pytest.param(SLOW, id="more", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("tight", [False, True])
def test_promises_hold(name: str, tight: bool, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    if tight:  # a map of a few runs, checkpoints of several records, a backlog of a few messages
        monkeypatch.setattr(ack_map, "CAPACITY", ack_map.NOTED + 50)
        monkeypatch.setattr(retry_partition, "TRIM", 1)
        monkeypatch.setattr(commits, "split", partial(split, most=5))
        monkeypatch.setattr(retry_state, "BACKLOG", 2)
        monkeypatch.setattr(maintenance, "BACKLOG", 2)
    for seed in seeds:
        run(seed, PLANS[name])
