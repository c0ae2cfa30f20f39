"""`topic`: create, list, describe, delete, adopt, update."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.session import Session
from kafka_pubsub.cli.types import DURATION, PAIR, pairs

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.client.topic import Topic

__all__ = ["confirm", "topic"]

COLUMNS = ("name", "partitions", "replication", "message_ordering", "retention", "labels")


@click.group(
    cls=Group,
    examples=[
        ("", "kafka-pubsub topic create orders --partitions 12 --ordering"),
        ("", "kafka-pubsub topic list"),
        ("a topic that Kafka has already", "kafka-pubsub topic adopt clicks"),
    ],
)
def topic() -> None:
    """Create, look at, change and delete topics."""


@topic.command(
    examples=[
        ("", "kafka-pubsub topic create orders"),
        ("", "kafka-pubsub topic create orders --partitions 12 --ordering --retention 7d --label team=shop"),
    ]
)
@click.argument("name")
@click.option("--partitions", type=int, help="How many partitions; fixed for good.  [default: 8]")
@click.option("--replication", type=int, help="Copies of each message.  [default: the broker's]")
@click.option(
    "--ordering/--no-ordering", default=None, help="Insist on ordering keys being allowed, or refuse them."
)
@click.option(
    "--retention", type=DURATION, help="How long messages are kept, e.g. 7d.  [default: the broker's]"
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="A label of yours. Can be repeated.")
@click.option("--exist-ok", is_flag=True, help="Succeed if it exists with these settings.")
@click.pass_obj
def create(
    session: Session,
    name: str,
    partitions: int | None,
    replication: int | None,
    ordering: bool | None,
    retention: float | None,
    labels: tuple[tuple[str, str], ...],
    exist_ok: bool,
) -> None:
    """Create a topic."""
    with session.pubsub() as pubsub:
        made = pubsub.create_topic(
            name,
            partitions=partitions,
            replication=replication,
            message_ordering=ordering,
            retention=retention,
            labels=pairs(labels, "--label") or None,
            exist_ok=exist_ok,
        )
        shown = _describe(made)
    session.output.result(shown, f"Created topic {name} with {shown['partitions']} partitions")


@topic.command(
    "list",
    examples=[("", "kafka-pubsub topic list"), ("", "kafka-pubsub topic list --json | jq -r '.[].name'")],
)
@click.pass_obj
def list_topics(session: Session) -> None:
    """List all topics."""
    with session.pubsub() as pubsub:
        rows = [_describe(each) for each in pubsub.list_topics()]
    session.output.table(rows, COLUMNS, "No topics yet: `kafka-pubsub topic create NAME` makes one.")


@topic.command(examples=[("", "kafka-pubsub topic describe orders")])
@click.argument("name")
@click.pass_obj
def describe(session: Session, name: str) -> None:
    """Show a topic's settings and its subscriptions."""
    with session.pubsub() as pubsub:
        shown = _describe(pubsub.topic(name)) | {"subscriptions": _subscriptions(pubsub, name)}
    session.output.details(shown)


@topic.command(
    examples=[
        ("", "kafka-pubsub topic delete orders"),
        ("without being asked", "kafka-pubsub topic delete orders --yes"),
    ]
)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a topic and its messages; its subscriptions become detached.

    An adopted topic is only forgotten: Kafka keeps it, and its messages.
    """
    confirm(session, f"Delete topic {name} and all its messages?", yes=yes)
    with session.pubsub() as pubsub:
        pubsub.delete_topic(name)
    session.output.result({"deleted": name}, f"Deleted topic {name}")


@topic.command(examples=[("", "kafka-pubsub topic adopt clicks --ordering")])
@click.argument("name")
@click.option(
    "--ordering/--no-ordering", default=None, help="Insist on ordering keys being allowed, or refuse them."
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="A label of yours. Can be repeated.")
@click.option("--exist-ok", is_flag=True, help="Succeed if it is adopted already, with these settings.")
@click.pass_obj
def adopt(
    session: Session, name: str, ordering: bool | None, labels: tuple[tuple[str, str], ...], exist_ok: bool
) -> None:
    """Take a topic that Kafka has already, with its messages."""
    with session.pubsub() as pubsub:
        adopted = pubsub.adopt_topic(
            name, message_ordering=ordering, labels=pairs(labels, "--label") or None, exist_ok=exist_ok
        )
        shown = _describe(adopted)
    session.output.result(shown, f"Adopted topic {name} with {shown['partitions']} partitions")


@topic.command(
    examples=[
        ("", "kafka-pubsub topic update orders --retention 30d"),
        ("back to the broker's default", "kafka-pubsub topic update orders --default-retention"),
    ]
)
@click.argument("name")
@click.option("--ordering/--no-ordering", default=None, help="Allow ordering keys, or refuse them.")
@click.option("--retention", type=DURATION, help="How long messages are kept, e.g. 7d.")
@click.option(
    "--default-retention", is_flag=True, help="Keep messages as long as the broker does by default."
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="Replaces all labels. Can be repeated.")
@click.pass_obj
def update(
    session: Session,
    name: str,
    ordering: bool | None,
    retention: float | None,
    default_retention: bool,
    labels: tuple[tuple[str, str], ...],
) -> None:
    """Change a topic's settings; what isn't given stays."""
    from kafka_pubsub.client.resources import UNSET

    if retention is not None and default_retention:
        raise click.UsageError("--retention and --default-retention exclude each other: give one")
    if ordering is None and retention is None and not default_retention and not labels:
        raise click.UsageError("nothing to change: give at least one setting")
    kept = UNSET if retention is None and not default_retention else retention
    with session.pubsub() as pubsub:
        changed = pubsub.update_topic(
            name,
            message_ordering=UNSET if ordering is None else ordering,
            retention=kept,
            labels=pairs(labels, "--label") if labels else UNSET,
        )
        shown = _describe(changed)
    session.output.result(shown, f"Updated topic {name}")


def confirm(session: Session, question: str, *, yes: bool) -> None:
    """Asks a person; a script has meant what it said."""
    if not yes and not session.as_json and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def _describe(each: Topic) -> dict[str, JsonValue]:
    options = each.options
    return {
        "name": each.name,
        "partitions": options.partitions,
        "replication": options.replication,
        "message_ordering": options.message_ordering,
        "retention": options.retention,
        "labels": dict(options.labels),
    }


def _subscriptions(pubsub: PubSub, name: str) -> list[JsonValue]:
    return [each.name for each in pubsub.list_subscriptions() if each.topic == name]
