"""`subscription` (or `sub`): create, list, describe, delete, update."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.session import Session
from kafka_pubsub.cli.topics import confirm
from kafka_pubsub.cli.types import DURATION, PAIR, pairs

if TYPE_CHECKING:
    from kafka_pubsub.client.subscription import Subscription
    from kafka_pubsub.config import RetryPolicy

__all__ = ["subscription"]

COLUMNS = ("name", "topic", "message_ordering", "ack_deadline", "min_backoff", "max_backoff", "labels")


@click.group(
    cls=Group,
    examples=[
        ("", "kafka-pubsub subscription create billing --topic orders --ordering"),
        ("", "kafka-pubsub subscription list"),
        ("`sub` is short for it", "kafka-pubsub sub describe billing"),
    ],
)
def subscription() -> None:
    """Create, look at, change and delete subscriptions."""


@subscription.command(
    examples=[
        ("", "kafka-pubsub subscription create billing --topic orders --ordering"),
        (
            "",
            "kafka-pubsub subscription create mail --topic orders --ack-deadline 60s --min-backoff 1s --max-backoff 5m",
        ),
    ]
)
@click.argument("name")
@click.option("--topic", required=True, help="What it receives; from now on.")
@click.option(
    "--ordering/--no-ordering", default=None, help="Messages of one key one after the other.  [default: no]"
)
@click.option(
    "--ack-deadline",
    type=DURATION,
    help="When a message that isn't acked comes again, 1s to 10m.  [default: 10s]",
)
@click.option(
    "--max-extension", type=DURATION, help="How long a running callback keeps its message.  [default: 1h]"
)
@click.option("--min-backoff", type=DURATION, help="Wait at least so long before a redelivery.")
@click.option("--max-backoff", type=DURATION, help="Wait at most so long before a redelivery.")
@click.option("--label", "labels", type=PAIR, multiple=True, help="A label of yours. Can be repeated.")
@click.option("--exist-ok", is_flag=True, help="Succeed if it exists with these settings.")
@click.pass_obj
def create(
    session: Session,
    name: str,
    topic: str,
    ordering: bool | None,
    ack_deadline: float | None,
    max_extension: float | None,
    min_backoff: float | None,
    max_backoff: float | None,
    labels: tuple[tuple[str, str], ...],
    exist_ok: bool,
) -> None:
    """Create a subscription, which receives what is published from now on."""
    with session.pubsub() as pubsub:
        made = pubsub.create_subscription(
            name,
            topic=topic,
            message_ordering=ordering,
            ack_deadline=ack_deadline,
            max_extension=max_extension,
            retry=_retry(min_backoff, max_backoff),
            labels=pairs(labels, "--label") or None,
            exist_ok=exist_ok,
        )
        shown = _describe(made)
    session.output.result(shown, f"Created subscription {name} on topic {topic}")


@subscription.command(
    "list",
    examples=[("", "kafka-pubsub subscription list"), ("", "kafka-pubsub sub list --topic orders --json")],
)
@click.option("--topic", help="Only those of this topic.")
@click.pass_obj
def list_subscriptions(session: Session, topic: str | None) -> None:
    """List all subscriptions."""
    with session.pubsub() as pubsub:
        rows = [_describe(each) for each in pubsub.list_subscriptions()]
    rows = [row for row in rows if topic is None or row["topic"] == topic]
    hint = "No subscriptions yet: `kafka-pubsub subscription create NAME --topic TOPIC` makes one."
    session.output.table(rows, COLUMNS, hint)


@subscription.command(examples=[("", "kafka-pubsub subscription describe billing")])
@click.argument("name")
@click.pass_obj
def describe(session: Session, name: str) -> None:
    """Show a subscription's settings."""
    with session.pubsub() as pubsub:
        shown = _describe(pubsub.subscription(name))
    session.output.details(shown)


@subscription.command(examples=[("", "kafka-pubsub subscription delete billing --yes")])
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a subscription and its position; the topic's messages stay."""
    confirm(session, f"Delete subscription {name} and its position?", yes=yes)
    with session.pubsub() as pubsub:
        pubsub.delete_subscription(name)
    session.output.result({"deleted": name}, f"Deleted subscription {name}")


@subscription.command(
    examples=[
        ("", "kafka-pubsub subscription update billing --ack-deadline 2m"),
        ("redeliver as soon as possible", "kafka-pubsub subscription update billing --no-backoff"),
    ]
)
@click.argument("name")
@click.option(
    "--ordering/--no-ordering", default=None, help="Messages of one key one after the other, or not."
)
@click.option("--ack-deadline", type=DURATION, help="When a message that isn't acked comes again, 1s to 10m.")
@click.option("--max-extension", type=DURATION, help="How long a running callback keeps its message.")
@click.option("--min-backoff", type=DURATION, help="Wait at least so long before a redelivery.")
@click.option("--max-backoff", type=DURATION, help="Wait at most so long before a redelivery.")
@click.option("--no-backoff", is_flag=True, help="Redeliver as soon as possible.")
@click.option("--label", "labels", type=PAIR, multiple=True, help="Replaces all labels. Can be repeated.")
@click.pass_obj
def update(
    session: Session,
    name: str,
    ordering: bool | None,
    ack_deadline: float | None,
    max_extension: float | None,
    min_backoff: float | None,
    max_backoff: float | None,
    no_backoff: bool,
    labels: tuple[tuple[str, str], ...],
) -> None:
    """Change a subscription's settings; what isn't given stays, and so do open streams."""
    from kafka_pubsub.client.resources import UNSET

    backoff = min_backoff is not None or max_backoff is not None
    if no_backoff and backoff:
        raise click.UsageError("--no-backoff excludes --min-backoff and --max-backoff")
    if (
        not (no_backoff or backoff or labels)
        and ordering is None
        and ack_deadline is None
        and max_extension is None
    ):
        raise click.UsageError("nothing to change: give at least one setting")
    with session.pubsub() as pubsub:
        before = pubsub.subscription(name).options.retry if backoff else None
        changed = pubsub.update_subscription(
            name,
            message_ordering=UNSET if ordering is None else ordering,
            ack_deadline=UNSET if ack_deadline is None else ack_deadline,
            max_extension=UNSET if max_extension is None else max_extension,
            retry=_retry(min_backoff, max_backoff, before) if backoff or no_backoff else UNSET,
            labels=pairs(labels, "--label") if labels else UNSET,
        )
        shown = _describe(changed)
    session.output.result(shown, f"Updated subscription {name}")


def _retry(low: float | None, high: float | None, before: RetryPolicy | None = None) -> RetryPolicy | None:
    """The policy that the options ask for; what isn't given is as before, or the default."""
    if low is None and high is None:
        return None
    from kafka_pubsub.config import RetryPolicy

    known = {} if before is None else {"min_backoff": before.min_backoff, "max_backoff": before.max_backoff}
    given = {"min_backoff": low, "max_backoff": high}
    return RetryPolicy(**{**known, **{name: value for name, value in given.items() if value is not None}})


def _describe(each: Subscription) -> dict[str, JsonValue]:
    options = each.options
    return {
        "name": each.name,
        "topic": each.topic,
        "message_ordering": options.message_ordering,
        "ack_deadline": options.ack_deadline,
        "max_extension": options.max_extension,
        "min_backoff": None if options.retry is None else options.retry.min_backoff,
        "max_backoff": None if options.retry is None else options.retry.max_backoff,
        "labels": dict(options.labels),
    }
