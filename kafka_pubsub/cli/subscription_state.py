"""The figures of subscriptions, as `list`, `describe` and `metrics` show them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from kafka_pubsub.cli.advice import advice
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.types import rough_duration
from kafka_pubsub.errors import DeadlineExceeded, FailedPrecondition, PermissionDenied, PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.subscribe.stream.status import LaneState, SubscriptionState
    from kafka_pubsub.subscription import Subscription

__all__ = ["FIGURES", "LIMIT", "figures", "for_eyes", "progress", "read_state"]

#: The figures of a subscription, and of each lane.
FIGURES: Final = (
    "backlog",
    "oldest_age",
    "waiting_retry",
    "parked",
    "blocked_keys",
    "dead_letters",
    "lag",
)
#: The figures that are lower bounds where something wasn't read, and the field that says so.
AT_LEAST: Final = {
    "parked": "unread_retry",
    "blocked_keys": "unread_retry",
    "dead_letters": "unread_dead_letters",
}

LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="N",
    help="Read so many waiting messages, and so many dead letters, of each subscription.",
)


def figures(of: SubscriptionState | LaneState, now: datetime) -> dict[str, JsonValue]:
    """Returns the figures by name; `oldest_age` in seconds, None if nothing is unfinished."""
    age = None if of.oldest is None else max(0.0, (now - of.oldest).total_seconds())
    return {name: age if name == "oldest_age" else getattr(of, name) for name in FIGURES}


def read_state(each: Subscription, limit: int) -> SubscriptionState | PubSubError:
    """Returns the subscription's state, or the reason why it can't receive or be read."""
    try:
        return each.state(limit=limit)
    except (FailedPrecondition, PermissionDenied, DeadlineExceeded) as error:
        return error


def progress(state: SubscriptionState | PubSubError) -> dict[str, JsonValue]:
    """Returns the figures, the members, the numbers of unread messages, and a problem; with one the others are None."""
    if isinstance(state, PubSubError):
        names = (*FIGURES, "members", "unread_retry", "unread_dead_letters")
        return {**dict.fromkeys(names), "problem": advice(state)}
    return {
        **figures(state, datetime.now(UTC)),
        "members": state.members,
        "unread_retry": state.unread_retry,
        "unread_dead_letters": state.unread_dead_letters,
        "problem": None,
    }


def for_eyes(session: Session, shown: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns fields as a person reads them: an age in one unit, and `1,000+` where something wasn't read."""
    if session.as_json:
        return shown
    age = shown["oldest_age"]
    seen = {**shown, "oldest_age": rough_duration(age) if isinstance(age, float) else age}
    for name, unread in AT_LEAST.items():
        if shown[unread] and shown[name] is not None:
            seen[name] = f"{shown[name]:,}+"
    return {name: value for name, value in seen.items() if name not in AT_LEAST.values()}
