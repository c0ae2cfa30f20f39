"""Brokers that Docker pauses, kills and cuts off, while messages flow: the histories of all clients are judged."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.containers.cluster import ContainerCluster
from tests.faults.arena import Arena
from tests.faults.faults import Burst, Fault, Stage, kill_broker
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round
from tests.seeds import DAY

#: Messages a second; a quarter of them is delayed, all have priorities, and multicasts come on top.
RATE = 60.0
#: Seconds: the bursts below take longer, and the first one is the last.
SECONDS = 1.0


def break_in_turn(cluster: ContainerCluster) -> Burst:
    """A burst in which each of Docker's means comes once."""

    def pause_broker(stage: Stage, rng: random.Random) -> None:
        _without(stage, rng, "pause-broker", cluster.paused)

    def cut_broker(stage: Stage, rng: random.Random) -> None:
        _without(stage, rng, "cut-broker", cluster.cut)

    def _without(
        stage: Stage, rng: random.Random, name: str, away: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        with stage.trouble(name):
            with away(rng.choice(cluster.nodes)):
                stage.wait(rng.uniform(2, 8))
            cluster.wait_in_sync()

    def each_of_three(stage: Stage, rng: random.Random) -> None:
        for burst in rng.sample((pause_broker, kill_broker, cut_broker), 3):
            burst(stage, rng)
            stage.wait(rng.uniform(1, 2))

    return each_of_three


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_reordered_while_docker_breaks_brokers(
    brokers: ContainerCluster, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    bursts = (break_in_turn(brokers),)
    fault = Fault("paused, killed, cut off", (bursts,), cluster=True, longest_stall=60.0, together=True)
    plan = RoundPlan("containers", seed=DAY, seconds=SECONDS, rate=RATE, settle=240.0)
    outcome = run_round(plan, Arena(brokers.bootstrap, brokers), tmp_path, fault)
    assert outcome.problems == []
    assert outcome.bursts == {"each_of_three": 1}
    counts = outcome.counts
    figure(f"{counts}, longest stall {outcome.stall} s, settled in {outcome.settled_in} s")
    assert min(counts[each] for each in ("acked", "delayed", "multicasts_home")) > RATE
