"""What the short rounds of the test suite have in common.

Rule: rounds that need only a broker are spread over the workers of a parallel run; those that share a cluster are in
a file of their own, because a file with a fixture of its own scope is given to one worker as a whole.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.arena import Arena
from tests.faults.faults import FAULTS
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round

__all__ = ["HUNG", "check", "possible"]

#: Seconds; one burst of every fault fits (a frozen consumer takes the longest: its session and up to 3 s).
SHORT = 12.0
#: Seconds until everything has to be acked; beside other tests on a busy machine a rebalance alone takes ten.
SETTLE = 240.0
#: Seconds until a round has failed for sure: all its waits are at their bounds.
HUNG = 600
#: Messages a second: enough that every burst meets some, few enough for two cores.
RATE = 200.0


def possible(*, cluster: bool) -> list[str]:
    """The faults that can be made today, with a cluster or without."""
    return [name for name, fault in FAULTS.items() if fault.cluster is cluster and fault.missing is None]


def check(name: str, arena: Arena, folder: Path) -> None:
    """Plays a short round; it has to show nothing wrong, and that there was something to go wrong."""
    fault = FAULTS[name]
    plan = RoundPlan(name, seed=1, seconds=SHORT, rate=RATE, settle=SETTLE)
    outcome = run_round(plan, arena, folder)
    assert outcome.problems == []
    assert outcome.counts["acked"] >= SHORT * RATE / 4
    assert outcome.counts["again"] > 0
    assert {burst.__name__ for bursts in fault.bursts for burst in bursts} >= set(outcome.bursts)
    assert len(outcome.bursts) >= len(fault.bursts)
    assert (outcome.counts["deaths"] > 0) >= (name in {"kill-consumer", "poison-kills"})
