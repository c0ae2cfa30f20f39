"""`delay`: what waits for its time, one message of it, cancelling it, and what couldn't be delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli.broker import progress
from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, counted, shown_bytes
from kafka_pubsub.cli.routers import count_routers
from kafka_pubsub.cli.service_deadletters import Picked, Service, at, deal_with, picking
from kafka_pubsub.errors import FailedPrecondition, NotFound

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.delays.dead_letters import DelayDeadLetter
    from kafka_pubsub.delays.waiting import WaitingMessage

__all__ = ["delay"]

#: The bounds of the histogram, in seconds, and their names.
_BOUNDS = (
    (1, "1 second"),
    (10, "10 seconds"),
    (60, "1 minute"),
    (600, "10 minutes"),
    (3600, "1 hour"),
    (86400, "1 day"),
    (7 * 86400, "1 week"),
    (30 * 86400, "30 days"),
    (365 * 86400, "1 year"),
)
_WIDTH = 40


@click.group(
    cls=Group,
    examples=[
        ("what waits", "kafka-pubsub delay list"),
        ("one message", "kafka-pubsub delay show _kafka_pubsub.delay.in:0:17"),
        ("what couldn't be delivered", "kafka-pubsub delay deadletters"),
    ],
)
def delay() -> None:
    """Look at delayed messages, cancel or replay them."""


@delay.command(
    cls=Command,
    name="list",
    examples=[("", "kafka-pubsub delay list"), ("of one topic", "kafka-pubsub delay list --topic orders")],
)
@click.option(
    "--topic", metavar="TOPIC", shell_complete=known_names.topics, help="Only messages for this topic."
)
@click.option("--messages", is_flag=True, help="List each message, by due time, instead of counts.")
@click.pass_obj
def list_waiting(session: Session, topic: str | None, messages: bool) -> None:
    """Show what waits: by topic, by tier, and when it is due.

    It reads all that waits, which takes a second for some ten thousand messages. If messages wait and no delay router
    is running, it says so; with --json `routers` counts them, or is null if the cluster doesn't tell.
    """
    read = 0

    with session.pubsub() as pubsub, progress(session) as tell:

        def count(more: int) -> None:
            nonlocal read
            read += more
            tell(f"{counted(read, 'record')} read")

        found = [each for each in pubsub.delays.waiting(on_read=count) if topic in (None, each.topic)]
        runs = count_routers(pubsub, session.output) if found or session.as_json else None
    found.sort(key=lambda each: (each.due is None, each.due or datetime.max.replace(tzinfo=UTC)))
    if messages:
        session.output.table(
            [_row(each) for each in found], ("message_id", "topic", "key", "due", "tier"), "Nothing waits."
        )
    elif session.as_json:
        session.output.result({"topics": _by_topic(found), "tiers": _by_tier(found), "routers": runs}, "")
    elif found:
        session.output.table(_by_topic(found), ("topic", "waiting", "bytes", "first_due", "last_due"), "")
        session.output.line("")
        session.output.table(_by_tier(found), ("tier", "waiting", "bytes"), "")
        session.output.line("")
        for line in _histogram(found, datetime.now(UTC)):
            session.output.line(line)
    else:
        session.output.note("Nothing waits.")


@delay.command(cls=Command, examples=[("", "kafka-pubsub delay show _kafka_pubsub.delay.in:0:17")])
@click.argument("id")
@click.pass_obj
def show(session: Session, id: str) -> None:
    """Show one delayed message, with its data.

    ID is what `publish --delay` printed.
    """
    with session.pubsub() as pubsub:
        found = _find(pubsub, id)
    about: dict[str, JsonValue] = {
        **_row(found),
        "in": None if found.due is None else _span((found.due - datetime.now(UTC)).total_seconds()),
        "attributes": dict(found.attributes),
    }
    session.output.details(about | shown_bytes("data", found.data or b""))


@delay.command(cls=Command, examples=[("", "kafka-pubsub delay cancel _kafka_pubsub.delay.in:0:17")])
@click.argument("id")
@click.option(
    "--timeout", type=float, default=10.0, show_default=True, help="Seconds to wait for the router."
)
@click.pass_obj
def cancel(session: Session, id: str, timeout: float) -> None:
    """Cancel a delayed message, if it isn't due yet.

    ID is what `publish --delay` printed.
    """
    with session.pubsub() as pubsub:
        if not pubsub.delays.cancel(id, timeout=timeout):
            _check_alive(pubsub, id)
            raise FailedPrecondition(
                f"message {id} doesn't wait any more: it was delivered, or is being delivered"
            )
    session.output.result({"message_id": id, "cancelled": True}, f"Cancelled {id}")


@delay.command(
    "deadletters",
    cls=Command,
    examples=[
        ("what couldn't be delivered, and why", "kafka-pubsub delay deadletters"),
        ("home, once their topic is there again", "kafka-pubsub delay deadletters --topic orders --replay"),
        ("give one up", "kafka-pubsub delay deadletters --id _kafka_pubsub.delay.in:0:17 --purge --yes"),
    ],
)
@picking
def dead_letters(session: Session, picked: Picked) -> None:
    """List what the routers couldn't deliver, bring it home, or give it up.

    A message becomes a dead letter if its topic is gone or refuses it, or if it isn't kafka_pubsub's. A replay can be
    stopped and called again: nothing goes home twice.
    """
    deal_with(session, _DEAD, picked)


def _dead_row(letter: DelayDeadLetter) -> dict[str, JsonValue]:
    return {
        "message_id": letter.message_id,
        "place": letter.id,
        "topic": letter.topic,
        "key": letter.ordering_key,
        "due": at(letter.due),
        "died": at(letter.died),
        "bytes": len(letter.data),
        "reason": letter.reason,
        "problem": letter.problem,
    }


#: What `delay deadletters` deals with.
_DEAD: Service[DelayDeadLetter] = Service(
    "the delays",
    lambda pubsub: pubsub.delays.dead_letters,
    lambda pubsub: pubsub.delays.replay,
    lambda pubsub: pubsub.delays.purge,
    _dead_row,
    ("message_id", "topic", "key", "due", "died", "bytes", "reason", "problem", "place"),
)


def _find(pubsub: PubSub, id: str) -> WaitingMessage:
    _check_alive(pubsub, id)
    for found in pubsub.delays.waiting(id):
        return found
    raise NotFound(f"no delayed message {id} waits: it may have been delivered or cancelled")


def _check_alive(pubsub: PubSub, id: str) -> None:
    """Raises an error if the message has become a dead letter; `id` may be its place among these."""
    dead = next(pubsub.delays.dead_letters(ids=[id]), None)
    if dead is not None:
        raise NotFound(
            f"message {dead.message_id} waits no more: no router could deliver it ({dead.reason}); see "
            f"`kafka-pubsub delay deadletters --id {dead.message_id}`"
        )


def _row(message: WaitingMessage) -> dict[str, JsonValue]:
    return {
        "message_id": message.message_id,
        "topic": message.topic,
        "key": message.ordering_key,
        "due": at(message.due),
        "tier": _place(message.tier),
        "bytes": message.size,
    }


def _by_topic(found: Sequence[WaitingMessage]) -> list[dict[str, JsonValue]]:
    from kafka_pubsub.delays.waiting import by_topic

    rows: list[dict[str, JsonValue]] = []
    for topic, some in by_topic(found).items():
        known = [each.due for each in some if each.due is not None]
        rows.append(
            {
                "topic": topic,
                "waiting": len(some),
                "bytes": sum(each.size for each in some),
                "first_due": at(min(known, default=None)),
                "last_due": at(max(known, default=None)),
            }
        )
    return rows


def _by_tier(found: Sequence[WaitingMessage]) -> list[dict[str, JsonValue]]:
    tiers = sorted({each.tier for each in found}, key=lambda tier: -1 if tier is None else tier)
    return [
        {
            "tier": _place(tier),
            "waiting": sum(each.tier == tier for each in found),
            "bytes": sum(each.size for each in found if each.tier == tier),
        }
        for tier in tiers
    ]


def _histogram(found: Sequence[WaitingMessage], now: datetime) -> list[str]:
    """Returns a line for each span of due times, with a bar."""
    counts: Counter[str] = Counter()
    for each in found:
        left = None if each.due is None else (each.due - now).total_seconds()
        counts[_bucket(left)] += 1
    names = ["overdue", *(f"within {name}" for _, name in _BOUNDS), "later", "not known yet"]
    used = [at for at, name in enumerate(names) if counts[name]]
    most = max(counts.values())
    return [
        f"{name:<19} {'█' * max(counts[name] > 0, _WIDTH * counts[name] // most):<{_WIDTH}} {counts[name]:,}"
        for name in names[used[0] : used[-1] + 1]
    ]


def _bucket(left: float | None) -> str:
    if left is None:
        return "not known yet"
    if left < 0:
        return "overdue"
    return next((f"within {name}" for bound, name in _BOUNDS if left <= bound), "later")


def _place(tier: int | None) -> str:
    return "came in" if tier is None else f"{tier} ({_span(2**tier)})"


def _span(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.3g} s"
