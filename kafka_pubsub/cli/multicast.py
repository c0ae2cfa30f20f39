"""`multicast`: what waits in causal topics, and for what; what they refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli.broker import progress
from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, counted
from kafka_pubsub.cli.routers import count_sequencers
from kafka_pubsub.cli.service_deadletters import Picked, Service, at, deal_with, picking

if TYPE_CHECKING:
    from kafka_pubsub.multicast.dead_letters import MulticastDeadLetter
    from kafka_pubsub.multicast.status import CausalStatus

__all__ = ["multicast", "pending_line", "status_row"]

_COLUMNS = ("topic", "partition", "clock", "pending", "oldest", "age", "held_by", "problem")


@click.group(
    cls=Group,
    examples=[
        ("what waits, and for what", "kafka-pubsub multicast status"),
        ("what couldn't be delivered", "kafka-pubsub multicast deadletters"),
    ],
)
def multicast() -> None:
    """Look at what waits in causal topics, or was refused by them."""


@multicast.command(
    cls=Command,
    examples=[
        ("", "kafka-pubsub multicast status"),
        ("of some topics", "kafka-pubsub multicast status orders stock"),
    ],
)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=known_names.topics)
@click.pass_obj
def status(session: Session, topics: tuple[str, ...]) -> None:
    """Show what waits in causal topics, and for what.

    For each partition: its clock, how many messages wait, the oldest of those that the others wait for, and the topics
    whose sequencers must act before that one is delivered. It reads all that waits, and says so if no sequencer runs.

    With --json `sequencers` counts these, or is null if the cluster doesn't tell. `unread` counts the records that no
    sequencer has handled, `uncommitted` those of open transactions or behind one: a publisher or sequencer that was
    killed leaves its transaction open for 20 seconds at most.
    """
    read = 0

    with session.pubsub() as pubsub, progress(session) as tell:

        def count(more: int) -> None:
            nonlocal read
            read += more
            tell(f"{counted(read, 'record')} read")

        found = [row for topic in topics or (None,) for row in pubsub.multicast.status(topic, on_read=count)]
        runs = count_sequencers(pubsub, session.output) if found or session.as_json else None
    now = datetime.now(UTC)
    if session.as_json:
        rows: list[JsonValue] = [status_row(each, now) for each in found]
        session.output.result({"topics": rows, "sequencers": runs}, "")
        return
    session.output.table([_shown(each, now) for each in found], _used_columns(found), "No causal topics.")
    uncommitted = sum(each.uncommitted for each in found)
    if uncommitted:
        session.output.note(f"{uncommitted:,} records belong to open transactions, or lie behind one.")


@multicast.command(
    "deadletters",
    cls=Command,
    examples=[
        ("what couldn't be delivered, and why", "kafka-pubsub multicast deadletters"),
        ("home, once their topic takes them", "kafka-pubsub multicast deadletters --topic orders --replay"),
        ("give one up", "kafka-pubsub multicast deadletters --id 9f1c22ab34d05e67-18.0 --purge --yes"),
    ],
)
@picking
def dead_letters(session: Session, picked: Picked) -> None:
    """List what the sequencers couldn't deliver, bring it home, or give it up.

    A message becomes a dead letter if its topic refuses it or was deleted before it came home, a record of an inbox if
    it isn't kafka_pubsub's. A replay stages the message again, for that topic alone, and a sequencer delivers it there.
    It can be stopped and called again: nothing goes home twice.
    """
    deal_with(session, _DEAD, picked)


def _dead_row(letter: MulticastDeadLetter) -> dict[str, JsonValue]:
    return {
        "message_id": letter.message_id,
        "place": letter.id,
        "topic": letter.topic,
        "key": letter.ordering_key,
        "published": at(letter.published),
        "died": at(letter.died),
        "bytes": len(letter.data),
        "reason": letter.reason,
        "problem": letter.problem,
    }


#: What `multicast deadletters` deals with.
_DEAD: Service[MulticastDeadLetter] = Service(
    "causal topics",
    lambda pubsub: pubsub.multicast.dead_letters,
    lambda pubsub: pubsub.multicast.replay,
    lambda pubsub: pubsub.multicast.purge,
    _dead_row,
    ("message_id", "topic", "key", "published", "died", "bytes", "reason", "problem", "place"),
)


def status_row(found: CausalStatus, now: datetime) -> dict[str, JsonValue]:
    """Returns what is known of a partition, as JSON has it."""
    block = found.block
    return {
        "topic": found.topic,
        "partition": found.partition,
        "clock": found.clock,
        "pending": found.pending,
        "unread": found.unread,
        "uncommitted": found.uncommitted,
        "block": None
        if block is None
        else {
            "message": block.message_id,
            "topics": list(block.topics),
            "since": block.since.isoformat(timespec="milliseconds"),
            "age": round((now - block.since).total_seconds(), 3),
            "held_by": list(block.held_by),
        },
        "deleted": found.deleted,
        "problem": found.problem or None,
    }


def pending_line(found: Sequence[CausalStatus], now: datetime) -> str:
    """Returns what waits in all partitions of a topic, as a line."""
    problem = next((each.problem for each in found if each.problem), "")
    if problem:
        return problem
    blocks = sorted((each.block for each in found if each.block is not None), key=lambda block: block.since)
    clock, pending = max(each.clock for each in found), sum(each.pending for each in found)
    line = f"clock {clock:,}, {pending:,} messages wait"
    if blocks:
        line += f", the oldest for {_age(blocks[0].since, now)}, held by {', '.join(blocks[0].held_by)}"
    return line


def _shown(found: CausalStatus, now: datetime) -> dict[str, JsonValue]:
    block = found.block
    return {
        "topic": f"{found.topic} (deleted)" if found.deleted else found.topic,
        "partition": found.partition,
        "clock": found.clock,
        "pending": found.pending,
        "oldest": None if block is None else block.message_id,
        "age": None if block is None else _age(block.since, now),
        "held_by": None if block is None else ", ".join(block.held_by),
        "problem": found.problem or None,
    }


def _used_columns(found: Sequence[CausalStatus]) -> Sequence[str]:
    return _COLUMNS if any(each.problem for each in found) else _COLUMNS[:-1]


def _age(since: datetime, now: datetime) -> str:
    seconds = max(0.0, (now - since).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
