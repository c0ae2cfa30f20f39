"""The scenario of push, for `scenarios`: its cost beside a bare loop of posts, and that of a key which fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_PUSH = "tests.benchmarks.rows.push:"


def _push(quick: bool) -> Scenario:
    warmup, measured = (200, 1_000) if quick else (5_000, 20_000)
    bare: dict[str, Parameter] = {
        "warmup": warmup,
        "measured": measured,
        "concurrency": 100,
        "patience": 300,
    }
    read: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}", "group": "{group}", **bare}
    return Scenario(
        "push",
        "Push to an HTTP endpoint on the same machine",
        f"{measured:,} messages of 1 KB after a warm-up of {warmup:,}, 1000 keys, 8 partitions, 100 requests at a "
        "time; the endpoint is a process of its own. With a key that fails, the same number again follows",
        {"rate": "requests/s", "kept": "of the rate before"},
        [
            Row("push", "a push connector", f"{_PUSH}push", True, "bare", read),
            Row("bare", "aiohttp: coroutines that post, without Kafka", f"{_PUSH}bare", False, "", bare),
            Row("failing", "a push connector, one key fails", f"{_PUSH}failing", True, "", read),
        ],
        [
            Target("60 % of bare posts", "push", "rate", at_least=0.6, beside="bare"),
            Target("a key that fails costs the others 10 %", "failing", "kept", at_least=0.9),
        ],
        "tests.benchmarks.cluster:prepare",
        {
            "bootstrap": "{bootstrap}",
            "topic": "{topic}",
            "distinct": 1000,
            "messages": warmup + 3 * measured,
        },
    )


ALL: Mapping[str, Callable[[bool], Scenario]] = {"push": _push}
