"""The scenarios of delayed delivery, for `scenarios`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_ROWS = "tests.benchmarks.rows."
_LOG: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}"}


def _delays(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {**_LOG, "messages": 2_000 if quick else 200_000}
    return Scenario(
        "delays",
        "Hops of one delay router that was away",
        f"{size['messages']:,} messages of 100 bytes, delays uniform from 3 to 68 minutes, 12 tiers of 2 partitions",
        {"rate": "records/s", "cpu_us": "us of CPU a record", "rss_mb": "MB"},
        [
            Row("ours", "kafka_pubsub: into the first tiers", f"{_ROWS}delays:router", True, "bare", size),
            Row(
                "bare", "confluent-kafka: consume, transform, produce", f"{_ROWS}delays:bare", parameters=size
            ),
        ],
        [
            Target("20,000 hops/s", "ours", "rate", at_least=20_000),
            Target("40 % of the bare loop", "ours", "rate", at_least=0.4, beside="bare"),
        ],
        repeatable=False,
    )


def _lateness(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        "bootstrap": "{bootstrap}",
        "group": "{group}",
        "rate": 200 if quick else 2000,
        # As long as the longest delay: then as many messages wait as ever will.
        "warmup_seconds": 3 if quick else 60,
        "seconds": 2 if quick else 40,
        "longest_ms": 3_000 if quick else 60_000,
        "distinct": 1000,
    }
    return Scenario(
        "lateness",
        f"How late delayed messages come home at {size['rate']:,} messages/s",
        f"messages of 1 KB, 1000 keys, delays uniform from 0.1 to {int(str(size['longest_ms'])) // 1000} s; those due "
        f"in {size['seconds']} s after a warm-up of {size['warmup_seconds']} s; from the due time until a plain "
        "consumer of committed records has the message; publisher, router and consumer in a process each",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms", "early": "early", "lost": "lost"},
        [Row("ours", "kafka_pubsub", f"{_ROWS}lateness:routed", True, parameters=size)],
        [
            Target("p50 at most 25 ms", "ours", "p50_ms", at_most=25),
            Target("p99 at most 100 ms", "ours", "p99_ms", at_most=100),
            Target("never early", "ours", "early", at_most=0),
            Target("nothing lost", "ours", "lost", at_most=0),
        ],
    )


def _waiting(quick: bool) -> Scenario:
    many = 20_000 if quick else 5_000_000
    return Scenario(
        "waiting",
        "The memory of a router while messages wait",
        "messages of 100 bytes, due in one to two hours; the most memory that the router's process took, from its "
        "start until 15 s after the last message came in",
        {"rss_mb": "MB", "rate": "messages/s"},
        [
            Row("ten", "10 messages", f"{_ROWS}delays:waiting", True, parameters={**_LOG, "messages": 10}),
            Row(
                "many",
                f"{many:,} messages",
                f"{_ROWS}delays:waiting",
                True,
                "ten",
                {**_LOG, "messages": many},
            ),
        ],
        [Target("under 150 MB", "many", "rss_mb", at_most=150)],
        repeatable=False,
    )


def _routers(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {"messages": 2_000 if quick else 200_000, "wait": 10.0 if quick else 60.0}
    return Scenario(
        "routers",
        "Three routers on twelve partitions",
        f"{size['messages']:,} messages of 100 bytes, 1000 keys, all due at one time; until all are home",
        {"rate": "messages/s", "idle": "routers without work"},
        [
            Row("three", "3 routers", f"{_ROWS}routers:shared", True, "one", {**size, "routers": 3}),
            Row("one", "1 router", f"{_ROWS}routers:shared", True, parameters={**size, "routers": 1}),
        ],
        [
            Target("none idle", "three", "idle", at_most=0),
            Target("together at least as fast as one", "three", "rate", at_least=1.0, beside="one"),
        ],
    )


def _growing(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {
        "messages": 400 if quick else 100_000,
        "first": 8.0 if quick else 60.0,
        "spread": 4.0 if quick else 60.0,
        "later": 100 if quick else 2_000,
    }
    return Scenario(
        "growing",
        "The delays get 12 partitions instead of 2 while messages wait",
        f"{size['messages']:,} messages wait, of three routers two are killed, {size['later']:,} messages come after "
        "the growth and are due meanwhile; lateness by a plain consumer of committed records",
        {
            "lost": "lost",
            "doubled": "doubled",
            "early": "early",
            "disordered": "keys out of order",
            "apply_s": "apply s",
            "last_s": "last late s",
            "p50_ms": "p50 ms",
            "p99_ms": "p99 ms",
            "newer_p50_ms": "newer p50 ms",
            "newer_p99_ms": "newer p99 ms",
        },
        [Row("ours", "kafka_pubsub", f"{_ROWS}routers:growing", True, parameters=size)],
        [
            Target(f"nothing {name}", "ours", name, at_most=0)
            for name in ("lost", "doubled", "early", "disordered")
        ],
    )


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {
    "delays": _delays,
    "lateness": _lateness,
    "waiting": _waiting,
    "routers": _routers,
    "growing": _growing,
}
