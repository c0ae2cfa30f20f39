"""`metrics`: what Kafka knows of unfinished messages, by lane, as Prometheus' text or as JSON, once or over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.advice import advice
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.serving import serve
from kafka_pubsub.cli.subscription_state import LIMIT, figures, read_state
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.services.signals import stop_flag

if TYPE_CHECKING:
    from kafka_pubsub.subscribe.stream.status import SubscriptionState
    from kafka_pubsub.subscription import Subscription

__all__ = ["metrics", "old_metrics"]

#: A row's fields that are figures, with the name and the meaning of the metric.
METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "backlog": (
        "kafka_pubsub_backlog",
        "Messages that aren't finished, those in retry topics included; a large number is an upper bound.",
    ),
    "oldest_age": (
        "kafka_pubsub_oldest_age_seconds",
        "For how long the oldest of them has waited; 0: none waits.",
    ),
    "waiting_retry": ("kafka_pubsub_waiting_retry", "Messages that wait for their next delivery."),
    "parked": (
        "kafka_pubsub_parked",
        "Messages that wait until they are released; at least so many, see --limit.",
    ),
    "blocked_keys": (
        "kafka_pubsub_blocked_keys",
        "Ordering keys whose later messages wait; at least so many, see --limit.",
    ),
    "dead_letters": (
        "kafka_pubsub_dead_letters",
        "Dead letters that are neither replayed nor purged; at least so many, see --limit.",
    ),
    "lag": ("kafka_pubsub_lag", "Kafka's lag: the end of the log less the committed position."),
}
#: The other fields; they become labels.
LABELS: Final = ("subscription", "topic", "lane", "priority", "class")


@click.command(
    cls=Command,
    examples=[
        ("all subscriptions", "kafka-pubsub metrics"),
        ("", "kafka-pubsub metrics billing > /var/lib/node_exporter/textfile/kafka_pubsub.prom"),
        ("", "kafka-pubsub metrics --json | jq '.[] | select(.oldest_age > 60)'"),
        ("for Prometheus, until Ctrl-C", "kafka-pubsub metrics --http 127.0.0.1:9464"),
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=known_names.subscriptions)
@LIMIT
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Answer /metrics with all subscriptions and services until Ctrl-C; a port alone is open on this machine only.",
)
@click.pass_obj
def metrics(session: Session, names: tuple[str, ...], limit: int, http: str | None) -> None:
    """Print the figures of unfinished messages, for a monitor.

    The text is that of Prometheus, for example for the textfile collector of its node exporter. `lane` is the lane's
    Kafka topic. A topic without lanes has one line. `subscription list --help` explains the figures.

    It is read from Kafka, whether or not a process receives: some fifteen requests for each subscription, eight
    subscriptions at a time. What processes count is at `/metrics` of `run --http` and `service --http`.
    """
    if http is None:
        _print(session, names, limit)
    elif names:
        raise click.UsageError("--http answers with all subscriptions: leave the names out")
    else:
        _serve(session, http)


@click.command("metrics", cls=Command, examples=[("the command of today", "kafka-pubsub metrics billing")])
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=known_names.subscriptions)
@LIMIT
@click.pass_obj
def old_metrics(session: Session, names: tuple[str, ...], limit: int) -> None:
    """Print the figures of unfinished messages: `kafka-pubsub metrics` now."""
    session.output.note(
        "`kafka-pubsub subscription metrics` is `kafka-pubsub metrics` now; the old name goes with version 0.2.0."
    )
    _print(session, names, limit)


def _serve(session: Session, http: str) -> None:
    from kafka_pubsub.handlers.health import Report

    with session.pubsub() as pubsub, stop_flag() as stop:
        pubsub.list_topics()  # connects, or says why that fails
        with serve(http, lambda: Report(True, True, {})) as server:
            session.output.note(f"Port {server.port} answers /metrics.")
            while not stop.is_set():
                stop.wait(1.0)
        stop.raise_if_set()


def _print(session: Session, names: tuple[str, ...], limit: int) -> None:
    def read(each: Subscription) -> tuple[str, SubscriptionState | PubSubError]:
        return each.name, read_state(each, limit)

    with session.pubsub() as pubsub:
        if names:
            found = [read(pubsub.subscription(each)) for each in names]
        else:
            found = shared.at_once(pubsub.list_subscriptions(), read)
    rows: list[dict[str, JsonValue]] = []
    for name, state in found:
        if isinstance(state, PubSubError):
            session.output.note(f"{name} can't receive: {advice(state)}")
        else:
            rows += _rows(state, datetime.now(UTC))
    session.output.result(list[JsonValue](rows), "\n".join(_lines(rows)))


def _rows(state: SubscriptionState, now: datetime) -> list[dict[str, JsonValue]]:
    if not state.lanes:
        return [_row(state, state.topic, 0, figures(state, now), durable=True)]
    return [
        _row(state, each.topic, each.priority, figures(each, now), durable=each.durable)
        for each in state.lanes
    ]


def _row(
    state: SubscriptionState, lane: str, priority: int, counted: dict[str, JsonValue], *, durable: bool
) -> dict[str, JsonValue]:
    return {
        "subscription": state.subscription,
        "topic": state.topic,
        "lane": lane,
        "priority": priority,
        "class": "durable" if durable else "transient",
        **counted,
        "oldest_age": counted["oldest_age"] or 0.0,
    }


def _lines(rows: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    lines = []
    for field, (name, meaning) in METRICS.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        # Names of topics and subscriptions hold nothing that has to be escaped.
        lines += [f"{name}{_labels(row)} {row[field]}" for row in rows if row[field] is not None]
    return lines


def _labels(row: Mapping[str, JsonValue]) -> str:
    return "{" + ",".join(f'{label}="{row[label]}"' for label in LABELS) + "}"
