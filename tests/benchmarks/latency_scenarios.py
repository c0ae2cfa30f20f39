"""The scenarios of a stream's end and of its pauses, for `scenarios`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_ROWS = "tests.benchmarks.rows.streams:"
_KEYS = 100


def _ends(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        "bootstrap": "{bootstrap}",
        "closes": 2 if quick else 9,
        "messages": 200 if quick else 2_000,
        "distinct": _KEYS,
    }
    return Scenario(
        "ends",
        "The end of a stream",
        f"`Stream.close()` right after the last ack of {size['messages']:,} messages, 100 keys, 8 partitions; each row "
        f"closes {size['closes']} streams",
        {"median_s": "median s", "longest_s": "longest s"},
        [
            Row("acked", "everything is acked", f"{_ROWS}ends", True, parameters={**size, "keep": False}),
            Row(
                "kept", "one key waits for its retry", f"{_ROWS}ends", True, parameters={**size, "keep": True}
            ),
        ],
        [
            Target("everything acked: 0.2 s", "acked", "median_s", at_most=0.2),
            Target("something kept: 0.4 s", "kept", "median_s", at_most=0.4),
        ],
    )


def _pauses(quick: bool) -> Scenario:
    bare: dict[str, Parameter] = {"workers": 100, "messages": 2_000 if quick else 60_000, "handler": 0.005}
    log: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}"}
    return Scenario(
        "pauses",
        "Callbacks of 5 ms from the first to the end of the stream, 100 workers",
        f"{bare['messages']:,} messages of 1 KB, 100 keys, 8 partitions; from the start of the first callback until "
        "the stream is closed; a pause is a time in which no callback begins",
        {"rate": "msg/s", "pause_s": "longest pause s"},
        [
            Row(
                "ours",
                "kafka_pubsub: threads",
                f"{_ROWS}callbacks",
                True,
                "bare",
                {**log, "group": "{group}", **bare},
            ),
            Row("bare", "100 bare threads that sleep as often", f"{_ROWS}bare", parameters=bare),
        ],
        [
            Target("80 % of bare threads", "ours", "rate", at_least=0.8, beside="bare"),
            Target("no pause above 0.2 s", "ours", "pause_s", at_most=0.2),
        ],
        "tests.benchmarks.cluster:prepare",
        {**log, "distinct": _KEYS, "messages": bare["messages"]},
    )


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {"ends": _ends, "pauses": _pauses}
