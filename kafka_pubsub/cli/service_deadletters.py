"""What `delay deadletters` and `multicast deadletters` have in common: picking, replaying and purging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.dead_letters.model import DeadLetterResult

__all__ = ["Picked", "Service", "at", "deal_with", "picking"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Find(Protocol[T_co]):
    """Finds the picked dead letters."""

    def __call__(self, *, ids: Iterable[str] | None, topic: str | None) -> Iterator[T_co]: ...


class Change(Protocol):
    """Replays or purges the picked dead letters."""

    def __call__(
        self, *, ids: Iterable[str] | None, topic: str | None, dry_run: bool
    ) -> DeadLetterResult: ...


class Service(NamedTuple, Generic[T]):
    """The dead letters of a service. `of`: what they are, in a question; `row` and `columns`: a table of them."""

    of: str
    find: Callable[[PubSub], Find[T]]
    replay: Callable[[PubSub], Change]
    purge: Callable[[PubSub], Change]
    row: Callable[[T], Mapping[str, JsonValue]]
    columns: Sequence[str]


class Picked(NamedTuple):
    """The options of a command."""

    ids: tuple[str, ...]
    topic: str | None
    replay: bool
    purge: bool
    dry_run: bool
    yes: bool


def picking(command: Callable[[Session, Picked], None]) -> Callable[..., None]:
    """Gives a command the options of `Picked`, and calls it with the session and these."""

    @click.pass_obj
    @wraps(command)
    def called(
        session: Session,
        ids: tuple[str, ...],
        topic: str | None,
        replay: bool,
        purge: bool,
        dry_run: bool,
        yes: bool,
    ) -> None:
        command(session, Picked(ids, topic, replay, purge, dry_run, yes))

    with_options: Callable[..., None] = called
    for option in (
        shared.YES,
        click.option(
            "--dry-run", is_flag=True, help="With --replay or --purge, only say what would be done."
        ),
        click.option("--purge", is_flag=True, help="Give them up for good."),
        click.option("--replay", is_flag=True, help="Bring them to their topics."),
        click.option(
            "--topic",
            metavar="TOPIC",
            shell_complete=known_names.topics,
            help="Only messages that were to go to this topic.",
        ),
        click.option(
            "--id",
            "ids",
            multiple=True,
            metavar="ID",
            help="Only this message, or the one at this place among the dead letters. Can be repeated.",
        ),
    ):
        with_options = option(with_options)
    return with_options


def deal_with(session: Session, service: Service[T], picked: Picked) -> None:
    """Lists the picked dead letters, brings them home, or gives them up."""
    if picked.replay and picked.purge:
        raise click.UsageError("--replay and --purge exclude each other")
    ids, topic = picked.ids or None, picked.topic
    if not (picked.replay or picked.purge):
        with session.pubsub() as pubsub:
            found = [service.row(each) for each in service.find(pubsub)(ids=ids, topic=topic)]
        session.output.table(found, service.columns, "No dead letters.")
        return
    asks = (
        picked.purge
        and not picked.dry_run
        and shared.asks(session, f"purging dead letters of {service.of}", yes=picked.yes)
    )
    with session.pubsub() as pubsub:
        if asks:
            count = service.purge(pubsub)(ids=ids, topic=topic, dry_run=True).count
            shared.confirm(f"Purge {count:,} dead letters for good?")
        change = service.replay if picked.replay else service.purge
        result = change(pubsub)(ids=ids, topic=topic, dry_run=picked.dry_run)
    done, would = ("replayed", "replay") if picked.replay else ("purged", "purge")
    session.output.result(
        {
            done: result.count,
            "keys": result.keys,
            "skipped": [{"reason": reason, "count": count} for reason, count in result.skipped.items()],
            "dry_run": picked.dry_run,
        },
        f"Would {would}: {result.count:,}" if picked.dry_run else f"{done.capitalize()}: {result.count:,}",
    )
    for reason, count in result.skipped.items():
        session.output.note(f"{count:,} left where they are: {reason}")


def at(moment: datetime | None) -> str | None:
    """Returns a time as tables and JSON have it."""
    return None if moment is None else moment.isoformat(timespec="milliseconds")
