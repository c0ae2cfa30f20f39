"""The scenarios of causal multicast, for `scenarios`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_ROWS = "tests.benchmarks.rows.multicast:"
_LOG: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "topic": "{topic}"}


def _multicast(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {**_LOG, "messages": 1_000 if quick else 100_000}
    one, two = {**size, "groups": 1, "sequencers": 1}, {**size, "groups": 1, "sequencers": 2}
    four: dict[str, Parameter] = {**size, "groups": 4, "sequencers": 2}
    return Scenario(
        "multicast",
        "Messages to three causal topics each",
        f"{size['messages']:,} messages of 100 bytes, until all futures have resolved; a publisher for each group; "
        "bare: 500 in a transaction",
        {"rate": "messages/s"},
        [
            Row("ours", "kafka_pubsub: one sequencer", f"{_ROWS}throughput", True, "bare", one),
            Row("bare", "confluent-kafka: three topics, no order", f"{_ROWS}bare", parameters=size),
            Row("two", "kafka_pubsub: two sequencers", f"{_ROWS}throughput", True, "ours", two),
            Row("groups", "the same, four disjoint groups", f"{_ROWS}throughput", True, "two", four),
        ],
        [
            Target("1,500 multicasts/s", "ours", "rate", at_least=1_500),
            Target("40 % of bare transactions", "ours", "rate", at_least=0.4, beside="bare"),
            Target("four groups: 1.5 times one", "groups", "rate", at_least=1.5, beside="two"),
        ],
    )


def _multicast_in_turn(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {**_LOG, "seconds": 2 if quick else 20, "sequencers": 2}
    return Scenario(
        "multicast_in_turn",
        "Publishers that wait for each message's place in the order",
        f"three causal topics each, two sequencers, {size['seconds']} s",
        {"rate": "messages/s"},
        [
            Row(
                "one", "kafka_pubsub: one group of topics", f"{_ROWS}in_turn", True, "", {**size, "groups": 1}
            ),
            Row(
                "groups",
                "four disjoint groups, a publisher each",
                f"{_ROWS}in_turn",
                True,
                "one",
                {**size, "groups": 4},
            ),
        ],
        [Target("four groups: 1.5 times one", "groups", "rate", at_least=1.5, beside="one")],
    )


def _multicast_latency(quick: bool) -> Scenario:
    rate, seconds = (50, 2) if quick else (200, 30)
    return Scenario(
        "multicast_latency",
        f"From publishing to a place in the order at {rate} messages/s",
        f"three causal topics, one sequencer, {seconds} s, an open loop",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"},
        [
            Row(
                "ours",
                "kafka_pubsub",
                f"{_ROWS}latency",
                True,
                parameters={**_LOG, "rate": rate, "seconds": seconds, "sequencers": 1, "load": 0},
            )
        ],
        [
            Target("p50 at most 100 ms", "ours", "p50_ms", at_most=100),
            Target("p99 at most 300 ms", "ours", "p99_ms", at_most=300),
        ],
    )


def _multicast_locality(quick: bool) -> Scenario:
    seconds, load = (2, 100) if quick else (20, 1_000)
    size: dict[str, Parameter] = {**_LOG, "rate": 50, "seconds": seconds, "sequencers": 2, "load": 0}
    return Scenario(
        "multicast_locality",
        "From publishing to a place in the order, beside a load on other topics",
        f"two sequencers, 50 messages/s to three causal topics, {seconds} s; load: {load:,} messages/s to three others",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"},
        [
            Row("alone", "kafka_pubsub", f"{_ROWS}latency", True, parameters=size),
            Row(
                "beside",
                "beside the load",
                f"{_ROWS}latency",
                True,
                "alone",
                parameters={**size, "load": load},
            ),
        ],
        [
            Target("p50 beside a load: 1.5 times at most", "beside", "p50_ms", at_most=1.5, beside="alone"),
            Target("p99 beside a load at most 300 ms", "beside", "p99_ms", at_most=300),
        ],
    )


def _multicast_new_topics(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {**_LOG, "topics": 6 if quick else 120, "seconds": 4 if quick else 20}
    return Scenario(
        "multicast_new_topics",
        f"From publishing to a place in the order, while topics are made among {size['topics']}",
        f"one message after the other to two causal topics, one sequencer, {size['seconds']} s; a new causal "
        "topic every two seconds",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"},
        [
            Row("quiet", "no topic is made", f"{_ROWS}new_topics", True, parameters={**size, "every": 0}),
            Row(
                "made",
                "topics are made",
                f"{_ROWS}new_topics",
                True,
                "quiet",
                parameters={**size, "every": 2},
            ),
        ],
        [Target("p99 while topics are made at most 300 ms", "made", "p99_ms", at_most=300)],
    )


def _home_away(quick: bool) -> Scenario:
    size: dict[str, Parameter] = {"messages": 20 if quick else 200}
    away = "tests.benchmarks.rows.away:"
    return Scenario(
        "home_away",
        "Messages of topics that are well, beside a home topic whose only broker is killed",
        f"three brokers a row, {size['messages']} messages one after the other; multicast: until the place in the "
        "order; delays: after the due time, in another partition of the delays",
        {"p50_ms": "p50 ms", "p99_ms": "p99 ms", "max_ms": "max ms"},
        [
            Row("multicast", "multicast, all brokers", f"{away}multicast", True, "", {**size, "away": False}),
            Row(
                "multicast_away",
                "a home is away",
                f"{away}multicast",
                True,
                "multicast",
                {**size, "away": True},
            ),
            Row("delays", "delays, all brokers", f"{away}delays", True, "", {**size, "away": False}),
            Row("delays_away", "a home is away", f"{away}delays", True, "delays", {**size, "away": True}),
        ],
        [
            Target("multicast: p99 at most twice", "multicast_away", "p99_ms", at_most=2, beside="multicast"),
            Target("delays: p99 at most twice", "delays_away", "p99_ms", at_most=2, beside="delays"),
        ],
    )


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {
    "multicast": _multicast,
    "multicast_in_turn": _multicast_in_turn,
    "multicast_latency": _multicast_latency,
    "multicast_locality": _multicast_locality,
    "multicast_new_topics": _multicast_new_topics,
    "home_away": _home_away,
}
