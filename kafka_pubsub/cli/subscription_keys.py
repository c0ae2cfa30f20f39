"""`subscription keys`: what holds keys up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, shown_bytes
from kafka_pubsub.cli.types import ago

if TYPE_CHECKING:
    from datetime import datetime

    from kafka_pubsub.subscribe.retry_topic.key_states import KeyState

__all__ = ["keys"]

#: Keys that are listed for a person without `--limit`.
LISTED: Final = 100

COLUMNS = ("key", "state", "since", "next_due", "attempt", "behind", "why", "message_id")

#: Keys that need an operator come first.
ORDER = ("unreadable", "parked", "leased", "waiting")


@click.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub subscription keys billing"),
        ("those that wait to be released", "kafka-pubsub subscription keys billing --state parked"),
        ("", "kafka-pubsub subscription keys billing --json | jq -r '.[] | select(.attempt > 3) | .key'"),
    ],
)
@shared.SUBSCRIPTION_NAME
@click.option("--state", type=click.Choice(ORDER), help="Only those.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"So many at most.  [default: {LISTED}; all with --json]",
)
@click.pass_obj
def keys(session: Session, name: str, state: str | None, limit: int | None) -> None:
    """Show which keys are held up, since when, and why.

    parked: its first message failed too often, and waits with those behind it until it is released. waiting: for its
    redelivery, at `next due`, or for an earlier message of its key in another lane. leased: with a callback, as of the
    last commit. A message without a key is shown by itself.

    It is read from Kafka, whether or not a process receives.
    """
    with session.pubsub() as pubsub:
        found = [each for each in pubsub.subscription(name).keys() if state in (None, each.state)]  # noqa: SIM118
    found.sort(key=lambda each: ORDER.index(each.state))
    most = limit if limit is not None or session.as_json else LISTED
    shown = found[:most]
    rows = [_describe(each) if session.as_json else _row(each) for each in shown]
    session.output.table(rows, COLUMNS, f"No key of {name} is held up.")
    if len(found) > len(shown):
        session.output.note(f"{len(found) - len(shown):,} more: --limit N shows more than {len(shown)}.")
    if any(each.state == "parked" for each in shown):
        session.output.note(f"`kafka-pubsub deadletter release {name}` lets parked messages be tried again.")


def _row(state: KeyState) -> dict[str, JsonValue]:
    why = f"{state.reason}: {state.error}" if state.error else state.reason
    return {
        "key": state.ordering_key,
        "state": state.state,
        "since": None if state.since is None else ago(state.since),
        "next_due": None if state.next_due is None else ago(state.next_due),
        "attempt": state.attempt or None,
        "behind": state.behind,
        "why": why[:100],
        "message_id": state.message_id or None,
    }


def _describe(state: KeyState) -> dict[str, JsonValue]:
    return {
        "message_id": state.message_id or None,
        **shown_bytes("key", state.key),
        "state": state.state,
        "reason": state.reason,
        "error": state.error,
        "since": _iso(state.since),
        "next_due": _iso(state.next_due),
        "attempt": state.attempt,
        "crashes": state.crashes,
        "behind": state.behind,
        "topic": state.topic,
        "partition": state.partition,
        "offset": None if state.offset < 0 else state.offset,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds")
