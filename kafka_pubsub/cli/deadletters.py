"""`deadletter`: list, show, replay, release, purge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.messages import DECODE, plain
from kafka_pubsub.cli.output import JsonValue, counted, shown_bytes
from kafka_pubsub.cli.progress import Tell, progress
from kafka_pubsub.cli.types import MOMENT, ago
from kafka_pubsub.errors import BadRecord, NotFound
from kafka_pubsub.services.signals import Stopped

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.dead_letters.model import DeadLetterMessage, DeadLetterProgress, DeadLetterResult
    from kafka_pubsub.subscription import Subscription

__all__ = ["deadletter"]

#: Dead letters that are listed for a person without `--limit`.
LISTED: Final = 100

COLUMNS = ("message_id", "key", "died", "attempts", "replays", "error", "place")

SUBSCRIPTION = shared.SUBSCRIPTION
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
TOPIC = click.option(
    "--topic",
    metavar="TOPIC",
    shell_complete=known_names.topics,
    help="Its dead-letter topic, if not the one that its policy names.",
)


@dataclass(frozen=True)
class Chosen:
    """The messages that the options pick."""

    keys: tuple[str, ...]
    ids: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    error: str | None

    def __bool__(self) -> bool:
        return any((self.keys, self.ids, self.since, self.until, self.error is not None))

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments for the methods of `Subscription`."""
        return {
            "keys": self.keys or None,
            "ids": self.ids or None,
            "since": self.since,
            "until": self.until,
            "error": self.error,
        }


def selecting(ids: str, form: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options that pick messages; the command gets them as one argument `chosen`."""
    options = (
        click.option("--key", "keys", multiple=True, help="Of this ordering key. Can be repeated."),
        click.option("--id", "ids", multiple=True, metavar=form, help=ids),
        click.option("--since", type=MOMENT, help="Not before: a time, or how long ago (2h)."),
        click.option("--until", type=MOMENT, help="Before: a time, or how long ago."),
        click.option("--error", metavar="TEXT", help="Whose error, or reason, contains this."),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def chosen(
            *,
            keys: tuple[str, ...],
            ids: tuple[str, ...],
            since: datetime | None,
            until: datetime | None,
            error: str | None,
            **others: object,
        ) -> object:
            return command(chosen=Chosen(keys, ids, since, until, error), **others)

        result: Callable[..., Any] = chosen
        for option in reversed(options):
            result = option(result)
        return result

    return decorate


DEAD_LETTERS = selecting("Of this message, or its place in the dead-letter topic. Can be repeated.", "ID")
PARKED = selecting("Of this message, or the place where it was published. Can be repeated.", "ID")


@click.group(
    cls=Group,
    examples=[
        ("what died, and why", "kafka-pubsub deadletter list billing"),
        ("again, from the beginning", "kafka-pubsub deadletter replay billing --key user-123"),
        ("what is parked goes on", "kafka-pubsub deadletter release billing"),
    ],
)
def deadletter() -> None:
    """Look at messages that failed too often, and bring them back."""


@deadletter.command(
    "list",
    examples=[
        ("", "kafka-pubsub deadletter list billing"),
        ("", "kafka-pubsub deadletter list billing --since 2h --error Timeout"),
        ("for a program", "kafka-pubsub deadletter list billing --json | jq -r '.[].message_id'"),
        ("of a subscription that is gone", "kafka-pubsub deadletter list billing --topic orders-dead"),
    ],
)
@SUBSCRIPTION
@DEAD_LETTERS
@TOPIC
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"So many at most.  [default: {LISTED}; all with --json]",
)
@click.pass_obj
def list_dead_letters(
    session: Session, subscription: str, chosen: Chosen, topic: str | None, limit: int | None
) -> None:
    """List a subscription's dead letters.

    Those that were replayed or purged aren't among them.
    """
    most = limit if limit is not None or session.as_json else LISTED
    with session.pubsub() as pubsub:
        dead_letters = pubsub.subscription(subscription).dead_letters(**chosen.arguments(), topic=topic)
        found = list(dead_letters if most is None else islice(dead_letters, most + 1))
    more = most is not None and len(found) > most
    if session.as_json:
        session.output.table([_describe(each) for each in found[:most]], COLUMNS, "")
        return
    rows = [_row(each) for each in found[:most]]
    nothing = f"No dead letters of {subscription}" + (" match." if chosen else ".")
    session.output.table(rows, COLUMNS, nothing)
    if more:
        session.output.note(f"There are more: --limit N shows more than {most}.")
    if stuck := sum(each.problem is not None for each in found[:most]):
        session.output.note(
            f"{stuck} of these can't be replayed; `kafka-pubsub deadletter show {subscription} ID` says why."
        )


@deadletter.command(examples=[("", "kafka-pubsub deadletter show billing orders:3:17")])
@SUBSCRIPTION
@click.argument("id")
@TOPIC
@click.option("--decode", is_flag=True, help=DECODE)
@click.pass_obj
def show(session: Session, subscription: str, id: str, topic: str | None, decode: bool) -> None:
    """Show one dead letter, with its data.

    ID is a message's, or its place in the dead-letter topic (PARTITION:OFFSET).
    """
    with session.pubsub() as pubsub:
        source = pubsub.subscription(subscription)
        dead_letter = next(source.dead_letters(ids=[id], topic=topic), None)
        if dead_letter is None:
            why = _meant(source, id, topic) or "it may have been replayed or purged"
            raise NotFound(f"subscription {subscription!r} has no dead letter {id}: {why}")
        record = _record(pubsub, dead_letter) if decode else {}
    session.output.details(_describe(dead_letter) | _contents(dead_letter) | record)


@deadletter.command(
    examples=[
        ("how many would it be", "kafka-pubsub deadletter replay billing --dry-run"),
        ("", "kafka-pubsub deadletter replay billing"),
        ("", "kafka-pubsub deadletter replay billing --key user-123 --since 2026-03-01T08:00"),
    ]
)
@SUBSCRIPTION
@DEAD_LETTERS
@TOPIC
@DRY_RUN
@click.pass_obj
def replay(session: Session, subscription: str, chosen: Chosen, topic: str | None, dry_run: bool) -> None:
    """Deliver dead letters again.

    All, or those that are picked. They go to this subscription only, those of a key in the order in which they
    were published, before what waits of that key. What was published after them may have been delivered long ago.
    Attempts begin anew; what fails again becomes a dead letter again.

    It can be stopped and called again: nothing is delivered twice.
    """
    with session.pubsub() as pubsub:
        source = pubsub.subscription(subscription)
        result = _watched(
            session,
            lambda tell: source.replay_dead_letters(
                **chosen.arguments(), topic=topic, dry_run=dry_run, on_progress=tell
            ),
            "Stopped. What went back is marked as done: the same command goes on with the rest.",
        )
        lonely = not dry_run and bool(result.count) and not source.state(limit=0).members
        hints = _hints(result.count, chosen, lambda id: _meant(source, id, topic))
    _answer(session, subscription, "replayed", "Replayed", "replay", result, dry_run, hints)
    if lonely:
        session.output.note(f"No process receives from {subscription} now: they wait until one does.")


@deadletter.command(
    examples=[
        ("everything that waits to be tried again", "kafka-pubsub deadletter release billing"),
        ("", "kafka-pubsub deadletter release billing --key user-123"),
        (
            "give a message up, so that its key goes on",
            "kafka-pubsub deadletter release billing --id orders:3:17 --drop --yes",
        ),
    ]
)
@SUBSCRIPTION
@PARKED
@click.option("--drop", is_flag=True, help="To the dead-letter topic, instead of trying again.")
@DRY_RUN
@click.option(
    "--yes", "-y", is_flag=True, help="Don't ask. --drop needs it without a terminal and with --json."
)
@click.pass_obj
def release(
    session: Session, subscription: str, chosen: Chosen, drop: bool, dry_run: bool, yes: bool
) -> None:
    """Let messages that wait be tried again.

    All, or those that are picked. Under `--on-exhausted park` a message that failed too often keeps its key until
    it is released; others wait until they are due. Each is tried again at once, its attempts beginning anew, and the
    later messages of its key follow. --drop concerns those that failed too often. --since and --until mean the first
    failure.
    """
    what = f"sending parked messages of {subscription} to the dead letters"
    asks = drop and not dry_run and shared.asks(session, what, yes=yes)
    with session.pubsub() as pubsub:
        source = pubsub.subscription(subscription)
        if asks:
            count = source.release(**chosen.arguments(), drop=True, dry_run=True).count
            shared.confirm(f"Send {count:,} parked messages of {subscription} to the dead letters?")
        result = _watched(
            session,
            lambda tell: source.release(**chosen.arguments(), drop=drop, dry_run=dry_run, on_progress=tell),
            "Stopped. Some may have been released; the same command releases the others.",
        )
        lonely = not dry_run and bool(result.count) and not source.state(limit=0).members
        hints = _hints(result.count, chosen, lambda id: _dead(source, id))
    past, verb = ("Dropped", "drop") if drop else ("Released", "release")
    _answer(session, subscription, past.lower(), past, verb, result, dry_run, hints, "parked message")
    if lonely:
        session.output.note(
            f"No process receives from {subscription} now: it is done as soon as one does. Until then "
            f"`kafka-pubsub subscription keys {subscription}` shows the same as before."
        )


@deadletter.command(
    examples=[
        ("", "kafka-pubsub deadletter purge billing"),
        ("what is older than a month", "kafka-pubsub deadletter purge billing --until 30d --yes"),
    ]
)
@SUBSCRIPTION
@DEAD_LETTERS
@TOPIC
@DRY_RUN
@shared.YES
@click.pass_obj
def purge(
    session: Session, subscription: str, chosen: Chosen, topic: str | None, dry_run: bool, yes: bool
) -> None:
    """Give dead letters up for good.

    All, or those that are picked. They can't be replayed any more. Then what is replayed or purged is deleted
    from the front of the topic, as far as no other subscription needs it; an adopted topic is left as it is.
    """
    asks = not dry_run and shared.asks(session, f"purging dead letters of {subscription}", yes=yes)
    with session.pubsub() as pubsub:
        source = pubsub.subscription(subscription)
        if asks:
            count = source.purge_dead_letters(**chosen.arguments(), topic=topic, dry_run=True).count
            if count:
                shared.confirm(f"Purge {count:,} dead letters of {subscription} for good?")
        result = _watched(
            session,
            lambda tell: source.purge_dead_letters(
                **chosen.arguments(), topic=topic, dry_run=dry_run, on_progress=tell
            ),
            "Stopped. The same command goes on with the rest.",
        )
        hints = _hints(result.count, chosen, lambda id: _meant(source, id, topic))
    _answer(session, subscription, "purged", "Purged", "purge", result, dry_run, hints)


def _meant(source: Subscription, id: str, topic: str | None = None) -> str | None:
    """Returns what an id means that no dead letter has, for an error; None: nothing."""
    for each in source.dead_letters(topic=topic):
        if f"{each.partition}:{each.offset}" == id:
            return f"message {each.message_id} was published there, and its dead letter lies at {each.id}"
    for key in source.keys():  # noqa: SIM118
        if id in (key.message_id, f"{key.partition}:{key.offset}"):
            look = f"`kafka-pubsub subscription keys {source.name}`"
            return f"message {key.message_id} is no dead letter, it is {key.state}: see {look}"
    return None


def _dead(source: Subscription, id: str) -> str | None:
    """Returns that a message which isn't parked is a dead letter; None: it isn't."""
    if source.options.dead_letter is None:
        return None
    found = next(source.dead_letters(ids=[id]), None)
    if found is None:
        return None
    back = f"`kafka-pubsub deadletter replay {source.name} --id {found.message_id or found.id}`"
    return f"message {found.message_id} isn't parked, it is a dead letter: {back} brings it back"


def _hints(count: int, chosen: Chosen, meant: Callable[[str], str | None]) -> list[str]:
    """Returns what the ids mean, if they picked nothing."""
    return [] if count else [hint for id in chosen.ids if (hint := meant(id)) is not None]


def _watched(
    session: Session,
    work: Callable[[Callable[[DeadLetterProgress], object]], DeadLetterResult],
    stopped: str,
) -> DeadLetterResult:
    """Does the work and shows its progress; if a signal ends it, the command prints `stopped`."""
    try:
        with progress(session.output) as tell:
            return work(lambda step: _tell(tell, step))
    except Stopped:
        session.output.note(stopped)
        raise


def _tell(tell: Tell, step: DeadLetterProgress) -> None:
    tell(step.phase.capitalize(), step.done, step.total)


def _answer(
    session: Session,
    subscription: str,
    name: str,
    past: str,
    verb: str,
    result: DeadLetterResult,
    dry_run: bool,
    hints: Sequence[str],
    what: str = "dead letter",
) -> None:
    shown: Mapping[str, JsonValue] = {
        "subscription": subscription,
        name: result.count,
        "keys": result.keys,
        "skipped": [{"reason": reason, "count": count} for reason, count in result.skipped.items()],
        "dry_run": dry_run,
    }
    did = f"Would {verb}" if dry_run else past
    keys = f" of {counted(result.keys, 'key')}" if result.keys else ""  # messages without a key have none
    said = f"{did} {counted(result.count, what)}{keys} ({subscription})"
    if not result.count:
        said = f"No {what} to {verb} ({subscription})"
    session.output.result(shown, said)
    for reason, count in result.skipped.items():
        session.output.note(f"{counted(count, what)} left where they are: {reason}")
    for hint in hints:
        session.output.note(f"{hint[0].upper()}{hint[1:]}.")


def _row(dead_letter: DeadLetterMessage) -> dict[str, JsonValue]:
    return {
        "message_id": dead_letter.message_id or f"unknown: {dead_letter.problem}",
        "key": dead_letter.ordering_key,
        "died": ago(dead_letter.died),
        "attempts": dead_letter.attempts,
        "replays": dead_letter.replays,
        "error": _error(dead_letter)[:80],
        "place": dead_letter.id,
    }


def _error(dead_letter: DeadLetterMessage) -> str:
    return ": ".join(filter(None, (dead_letter.error_class, dead_letter.error))) or dead_letter.reason


def _describe(dead_letter: DeadLetterMessage) -> dict[str, JsonValue]:
    return {
        "message_id": dead_letter.message_id,
        "place": dead_letter.id,
        **shown_bytes("key", dead_letter.key),
        "subscription": dead_letter.subscription,
        "topic": dead_letter.topic,
        "partition": dead_letter.partition,
        "offset": dead_letter.offset,
        "published": dead_letter.publish_time.isoformat(timespec="milliseconds"),
        "died": dead_letter.died.isoformat(timespec="milliseconds"),
        "reason": dead_letter.reason,
        "error_class": dead_letter.error_class,
        "error": dead_letter.error,
        "attempts": dead_letter.attempts,
        "crashes": dead_letter.crashes,
        "replays": dead_letter.replays,
        "problem": dead_letter.problem,
    }


def _record(pubsub: PubSub, dead_letter: DeadLetterMessage) -> dict[str, JsonValue]:
    """Returns the dead letter's record, or why it has none."""
    try:
        return {"record": plain(pubsub.decode(dead_letter))}
    except BadRecord as error:
        return {"record": None, "not_a_record": error.message}


def _contents(dead_letter: DeadLetterMessage) -> dict[str, JsonValue]:
    return {"attributes": dict(dead_letter.attributes), **shown_bytes("data", dead_letter.data)}
