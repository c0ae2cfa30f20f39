"""The scenario of workers as processes, for `scenarios`: a kill, a change over REST, and idleness."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_WORKERS = "tests.benchmarks.rows.workers:"
_PLACE: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{group}"}


def _workers(quick: bool) -> Scenario:
    return Scenario(
        "workers",
        "Workers: one of three is killed, a connector is changed, one idles",
        "a push connector on 12 partitions, 60 keys, 200 messages/s; the idle worker has five connectors, a delay "
        "router and a sequencer",
        {
            "gap_s": "s without a key",
            "violations": "violations",
            "made_s": "s until made",
            "left_s": "s until the old one ends",
            "changed_s": "s until changed",
            "memory_mb": "MB",
            "cpu": "% of a core",
        },
        [
            Row("kill", "a killed worker", f"{_WORKERS}kill", True, "", _PLACE),
            Row("change", "a connector made and changed over REST", f"{_WORKERS}change", True, "", _PLACE),
            Row("idle", "an idle worker", f"{_WORKERS}idle", True, "", _PLACE),
        ],
        [
            Target("its work goes on within 10 s", "kill", "gap_s", at_most=10),
            Target("nothing lost, in order", "kill", "violations", at_most=0),
            Target("all three run what was made within 2 s", "change", "made_s", at_most=2),
            Target("all three run a change within 2 s", "change", "changed_s", at_most=2),
            Target("150 MB", "idle", "memory_mb", at_most=150),
            Target("4 % of a core", "idle", "cpu", at_most=4),
        ],
    )


ALL: Mapping[str, Callable[[bool], Scenario]] = {"workers": _workers}
