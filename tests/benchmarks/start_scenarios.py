"""The scenario of start-up, for `scenarios`: the steps for which a process waits before it works at full speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.benchmarks.figures import Parameter, Row, Scenario, Target

__all__ = ["ALL"]

_OURS, _BARE = "tests.benchmarks.rows.start:", "tests.benchmarks.rows.start_bare:"
_PLACE: dict[str, Parameter] = {"bootstrap": "{bootstrap}", "group": "{group}"}

#: The name of the function, and the work of our row and of the bare row.
_STEPS: Final = (
    ("publish", "publish().result()", "produce, flush"),
    ("create_topic", "create_topic", "create_topics"),
    ("create_subscription", "create_subscription", "a topic more, and the group's positions"),
    ("receive", "receive()", "subscribe, then a message"),
    ("close_stream", "close() of a stream, all acked", "commit, and the consumer's close()"),
    ("close_publisher", "close() of a PubSub that has published", "the producer's flush and end"),
)
_PARTITIONS: Final = (1, 8, 64)


def _start(quick: bool) -> Scenario:
    return Scenario(
        "start",
        "Start-up: the first and the second time in a process",
        "the first time includes the imports and the connection; a topic of 8 partitions, and a message that waits; "
        "the second time of a command is a second process",
        {"first_ms": "first ms", "again_ms": "second ms"},
        [
            *(row for name, ours, bare in _STEPS for row in _pair(name, name, ours, bare, _PLACE)),
            *(row for partitions in _PARTITIONS for row in _pull(partitions)),
            *_commands(),
        ],
        [
            Target(
                "first publish().result(): 1.5 times confluent-kafka",
                "publish",
                "first_ms",
                at_most=1.5,
                beside="publish-bare",
            )
        ],
        "tests.benchmarks.rows.start:prepare",
        {**_PLACE, "rounds": 1 if quick else 2},
    )


def _pull(partitions: int) -> list[Row]:
    where = "1 partition" if partitions == 1 else f"{partitions} partitions"
    ours, bare = f"pull() to the first callback, {where}", f"subscribe to the first message, {where}"
    return _pair(f"pull-{partitions}", "pull", ours, bare, {**_PLACE, "partitions": partitions})


def _pair(name: str, function: str, ours: str, bare: str, parameters: Mapping[str, Parameter]) -> list[Row]:
    other = f"{name}-bare"
    return [
        Row(name, f"kafka_pubsub: {ours}", f"{_OURS}{function}", True, other, parameters),
        Row(other, f"confluent-kafka: {bare}", f"{_BARE}{function}", parameters=parameters),
    ]


def _commands() -> list[Row]:
    place: dict[str, Parameter] = {"bootstrap": "{bootstrap}"}
    return [
        Row("help", "kafka-pubsub --help", f"{_OURS}show_help", True, "help-bare"),
        Row("help-bare", "a bare click command's --help", f"{_BARE}show_help"),
        Row("list", "kafka-pubsub topic list", f"{_OURS}list_topics", True, "list-bare", place),
        Row("list-bare", "python: confluent-kafka's list_topics", f"{_BARE}list_topics", parameters=place),
    ]


ALL: Final[Mapping[str, Callable[[bool], Scenario]]] = {"start": _start}
