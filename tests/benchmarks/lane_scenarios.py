"""The scenarios of lanes, for `scenarios`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_ROWS = "tests.benchmarks.rows.lanes:"
_LOG: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "group": "{group}"}
#: Ten workers of 10 ms: 1,000 messages a second.
_HANDLER: dict[str, Parameter] = {"workers": 10, "handler": 0.01}
_MIXED = {
    "high_p50_ms": "high p50 ms",
    "high_p99_ms": "high p99 ms",
    "low_max_ms": "low max ms",
    "high_rate": "high msg/s",
    "low_rate": "low msg/s",
}


def _mixed(quick: bool, high: int, low: int) -> Sequence[Row]:
    time: dict[str, Parameter] = {"warmup_seconds": 2 if quick else 10, "seconds": 3 if quick else 30}
    size: dict[str, Parameter] = {**_LOG, **_HANDLER, **time, "high": high, "low": low}
    return [
        Row("ours", "kafka_pubsub: lanes", f"{_ROWS}mixed", True, parameters={**size, "way": "ours"}),
        Row("ordered", "the same, ordered", f"{_ROWS}mixed", True, parameters={**size, "way": "ordered"}),
        Row("one", "one consumer of both topics", f"{_ROWS}mixed", parameters={**size, "way": "one"}),
        Row(
            "each",
            "a consumer for each, half of the workers",
            f"{_ROWS}mixed",
            parameters={**size, "way": "each"},
        ),
    ]


def _urgent(quick: bool) -> Scenario:
    return Scenario(
        "lanes_urgent",
        "Urgent messages under 120 % load of others",
        "1,200 low messages/s for ten workers of 10 ms, and 20 high ones; 1 KB, 8 partitions, 30 s after 10 s of "
        "warm-up",
        _MIXED,
        _mixed(quick, 20, 1200),
        [
            Target("high p99 at most one handler time + 20 ms", "ours", "high_p99_ms", at_most=30),
            Target("high p99 of an ordered subscription", "ordered", "high_p99_ms", at_most=60),
        ],
    )


def _few(quick: bool) -> Scenario:
    return Scenario(
        "lanes_few",
        "A low message a second under permanent load of high ones",
        "1,200 high messages/s for ten workers of 10 ms; ageing at its default of 5 s",
        _MIXED,
        _mixed(quick, 1200, 1),
        [Target("low waits 5 s + one handler time at most", "ours", "low_max_ms", at_most=5_010)],
    )


def _many(quick: bool) -> Scenario:
    alone = Row(
        "alone",
        "kafka_pubsub: no low ones",
        f"{_ROWS}mixed",
        True,
        parameters={**_mixed(quick, 1200, 0)[0].parameters},
    )
    return Scenario(
        "lanes_many",
        "Many low messages under permanent load of high ones",
        "1,200 messages/s of each for ten workers of 10 ms; ageing at its default of 5 s",
        _MIXED,
        [*_mixed(quick, 1200, 1200), alone],
        [Target("high: 90 % of its rate alone", "ours", "high_rate", at_least=0.9, beside="alone")],
    )


def _rate(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        **_LOG,
        "warmup": 2_000 if quick else 50_000,
        "measured": 5_000 if quick else 400_000,
    }
    rows = [
        Row(
            name,
            title,
            f"{_ROWS}pull",
            True,
            "" if name == "plain" else "plain",
            {**size, "lanes": lanes, "flowing": flowing},
        )
        for name, title, lanes, flowing in (
            ("plain", "no lanes", 1, 1),
            ("ten", "ten lanes, all flowing", 10, 10),
            ("idle", "ten lanes, one flowing", 10, 1),
        )
    ]
    return Scenario(
        "lanes_rate",
        "Pull of a topic with lanes, a callback that only acknowledges",
        f"{size['measured']:,} messages of 1 KB after a warm-up of {size['warmup']:,}, 1000 keys, 8 partitions",
        {"rate": "msg/s"},
        rows,
        [
            Target("ten flowing: 70 % of one", "ten", "rate", at_least=0.7, beside="plain"),
            Target("idle ones: 95 %", "idle", "rate", at_least=0.95, beside="plain"),
        ],
    )


def _classes(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {**_LOG, "messages": 100 if quick else 5_000}
    return Scenario(
        "lanes_classes",
        "One publisher that changes the class with each message",
        f"{size['messages']:,} messages of 1 KB, one partition",
        {"rate": "msg/s"},
        [Row("ours", "kafka_pubsub", f"{_ROWS}alternating", True, parameters=size)],
        [],
    )


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {
    "lanes_urgent": _urgent,
    "lanes_few": _few,
    "lanes_many": _many,
    "lanes_rate": _rate,
    "lanes_classes": _classes,
}
