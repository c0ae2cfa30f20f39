"""`subscription metrics`: what waits in each lane, as Prometheus' text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.advice import advice
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.errors import FailedPrecondition

if TYPE_CHECKING:
    from kafka_pubsub.client.subscribe.status import LaneState, SubscriptionState
    from kafka_pubsub.client.subscribe.subscription import Subscription

__all__ = ["metrics", "oldest_age"]

#: A row's fields that are figures, with the name and the meaning of the metric.
METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "lag": ("kafka_pubsub_lag", "Messages that aren't known to be finished."),
    "oldest_age": (
        "kafka_pubsub_oldest_age_seconds",
        "For how long the oldest of them has waited; 0: none waits.",
    ),
}
#: The other fields; they become labels.
LABELS: Final = ("subscription", "topic", "lane", "priority", "class")


@click.command(
    cls=Command,
    examples=[
        ("all subscriptions", "kafka-pubsub subscription metrics"),
        ("", "kafka-pubsub subscription metrics billing > /var/lib/node_exporter/textfile/kafka_pubsub.prom"),
        ("", "kafka-pubsub subscription metrics --json | jq '.[] | select(.oldest_age > 60)'"),
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.pass_obj
def metrics(session: Session, names: tuple[str, ...]) -> None:
    """Print the lag and the oldest age of each lane, for a monitor.

    The text is that of Prometheus, for example for the textfile collector of its node exporter. `lane` is the lane's
    Kafka topic. A topic without lanes has one line, with its lag.

    It is read from Kafka, whether or not a process receives.
    """
    with session.pubsub() as pubsub:
        read = _reading(session)
        if names:
            found = [read(pubsub.subscription(each)) for each in names]
        else:
            found = shared.still_there(pubsub.list_subscriptions(), read)
    rows = [row for some in found for row in some]
    session.output.result(list[JsonValue](rows), "\n".join(_lines(rows)))


def oldest_age(lane: LaneState, now: datetime) -> float | None:
    """Returns for how many seconds a lane's oldest message has waited; None: none waits."""
    return None if lane.oldest is None else max(0.0, (now - lane.oldest).total_seconds())


def _reading(session: Session) -> Callable[[Subscription], list[dict[str, JsonValue]]]:
    def read(each: Subscription) -> list[dict[str, JsonValue]]:
        try:
            return _rows(each.state(), datetime.now(UTC))
        except FailedPrecondition as error:
            session.output.note(f"{each.name} can't receive: {advice(error)}")
            return []

    return read


def _rows(state: SubscriptionState, now: datetime) -> list[dict[str, JsonValue]]:
    of: dict[str, JsonValue] = {"subscription": state.subscription, "topic": state.topic}
    if not state.lanes:
        return [{**of, "lane": state.topic, "priority": 0, "class": "durable", "lag": state.lag}]
    return [
        {
            **of,
            "lane": each.topic,
            "priority": each.priority,
            "class": "durable" if each.durable else "transient",
            "lag": each.lag,
            "oldest_age": oldest_age(each, now) or 0.0,
        }
        for each in state.lanes
    ]


def _lines(rows: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    lines = []
    for field, (name, meaning) in METRICS.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        # Names of topics and subscriptions hold nothing that has to be escaped.
        lines += [f"{name}{_labels(row)} {row[field]}" for row in rows if field in row]
    return lines


def _labels(row: Mapping[str, JsonValue]) -> str:
    return "{" + ",".join(f'{label}="{row[label]}"' for label in LABELS) + "}"
