"""What the short rounds of the test suite have in common.

Rule: rounds that need only a broker are spread over the workers of a parallel run; those that share a cluster are in
a file of their own, because a file with a fixture of its own scope is given to a single worker as a whole.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.arena import Arena
from tests.faults.faults import FAULTS
from tests.faults.plan import RoundPlan
from tests.faults.round import run_round
from tests.seeds import DAY, DEEP

__all__ = ["HUNG", "check", "possible"]

#: Seconds; after them the burst that is under way is the last: of a short round one or two, as long as they take.
SHORT = 60.0 if DEEP else 4.0
#: Of the round of all together, which has more to break, and a load for two cores.
LONGER, SLOWER = max(SHORT, 10.0), 60.0
#: Seconds until everything has to be done; beside other tests on a busy machine a rebalance alone takes ten.
SETTLE = 240.0
#: Seconds until a round has failed for sure: all its waits are at their bounds.
HUNG = 600
#: Messages a second: enough that every burst meets some, few enough for two cores.
RATE = 150.0


def possible(*, cluster: bool) -> list[str]:
    """The faults that need a cluster, or those that don't. All of them together take too long for a suite."""
    return [name for name, fault in FAULTS.items() if fault.cluster is cluster and name != "mixed"]


def check(name: str, arena: Arena, folder: Path) -> None:
    """Plays a short round; it has to show nothing wrong, and that there was something to go wrong."""
    fault = FAULTS[name]
    # Poison that kills takes a life for each attempt, and each life a session.
    publishers = 1 if "kills" in fault.poison else 2
    seconds, rate = (LONGER, SLOWER) if fault.together else (SHORT, RATE)
    plan = RoundPlan(
        name, seed=DAY if DEEP else 1, seconds=seconds, rate=rate, settle=SETTLE, publishers=publishers
    )
    outcome = run_round(plan, arena, folder)
    assert not outcome.problems, "\n".join(outcome.problems)
    counts = outcome.counts
    assert counts["acked"] >= seconds * rate / 4
    assert counts["again"] > 0
    assert counts["buried"] == (publishers if fault.poison else 0)
    assert {burst.__name__ for bursts in fault.bursts for burst in bursts} >= set(outcome.bursts)
    assert sum(outcome.bursts.values()) >= len(fault.bursts)
    if fault.together:
        assert counts["delayed"] > 0
        assert counts["multicasts_home"] > 0
        return
    assert (counts["deaths"] > 0) == (name in {"kill-consumer", "kill-in-transaction", "poison-kills"})
    assert (counts["in_transaction"] > 0) == (name == "kill-in-transaction")
