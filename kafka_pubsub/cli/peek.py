"""`peek` and `topic tail`: messages that are looked at without a group, so that nothing changes by it."""

from __future__ import annotations

from typing import Final

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.log_notes import OUTAGES, noted
from kafka_pubsub.cli.messages import Shown, with_forms
from kafka_pubsub.services.signals import Stopped

__all__ = ["peek", "tail"]

#: Messages that are shown to a person without `--max`.
LISTED: Final = 100


@click.command(
    cls=Command,
    examples=[
        ("unfinished messages, the oldest first", "kafka-pubsub peek billing"),
        ("", "kafka-pubsub peek billing --max 5"),
        (
            "for a program",
            "kafka-pubsub peek billing --json | jq -r 'select(.state == \"parked\") | .message_id'",
        ),
    ],
)
@shared.SUBSCRIPTION
@click.option(
    "--max",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"So many at most.  [default: {LISTED}; all with --json or --data-only]",
)
@with_forms
@click.pass_obj
def peek(
    session: Session, subscription: str, limit: int | None, data_only: bool, full: bool, decode: bool
) -> None:
    """Show the messages that a subscription hasn't finished. Nothing changes.

    No group is joined, so processes that receive go on. Messages of a key come in their order, those that wait for a
    redelivery too: `leased` to a callback, as of the last commit; `waiting` until they are due, or behind an earlier
    message of their key; `parked` until they are released. With --json `state` says so, and the other fields are
    those of `pull`.
    """
    shown = Shown(session, data_only=data_only, full=full, decode=decode)
    most = limit if limit is not None or session.as_json or data_only else LISTED
    more = False
    with session.pubsub() as pubsub:
        for message in pubsub.subscription(subscription).peek(None if most is None else most + 1):
            more = shown.count == most
            if not more:
                shown.show(message)
    shown.end()
    if not shown.count:
        session.output.note(f"{subscription} has finished everything.")
    if more:
        session.output.note(f"There are more: --max N shows more than {most}.")


@click.command(
    cls=Command,
    examples=[
        ("the newest messages", "kafka-pubsub topic tail orders"),
        ("go on until Ctrl-C", "kafka-pubsub topic tail orders --follow"),
        ("only messages that come from now on", "kafka-pubsub topic tail orders --lines 0 --follow"),
    ],
)
@shared.TOPIC_NAME
@click.option(
    "--lines",
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the newest N messages.",
)
@click.option(
    "--follow", "-f", is_flag=True, help="Then show new messages, until Ctrl-C or SIGTERM (exit code 0)."
)
@with_forms
@click.pass_obj
def tail(
    session: Session, name: str, count: int, follow: bool, data_only: bool, full: bool, decode: bool
) -> None:
    """Show the newest messages of a topic, of all its lanes. Nothing changes.

    No group is joined, so no subscription notices. With --json a message has the same fields as with `pull`.
    """
    shown = Shown(session, data_only=data_only, full=full, decode=decode)
    try:
        with noted(session.output, *((OUTAGES,) if follow else ())), session.pubsub() as pubsub:
            for message in pubsub.topic(name).tail(count, follow=follow):
                shown.show(message)
    except Stopped:
        if not follow:
            raise
    shown.end()
    if not shown.count:
        session.output.note(f"Topic {name} has no messages." if count else f"Nothing came to topic {name}.")
