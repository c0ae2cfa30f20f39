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


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {
    "delays": _delays,
    "lateness": _lateness,
    "waiting": _waiting,
}
