"""`publish`: an argument, a file, or lines on stdin.

Rules
1. A line is a message, its bytes untouched: only the line feed that ends it is taken off, no encoding is assumed.
2. Lines are read as they are needed, so a file may be larger than memory: the publisher's flow control holds the
   reader back. What arrives slowly (`tail -f`) is sent at once.
3. The first failure ends it. The error says how many messages were stored before; nothing is tried twice.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.keys import KeyRule
from kafka_pubsub.cli.log_notes import PUBLISHING, noted
from kafka_pubsub.cli.output import counted
from kafka_pubsub.cli.publishing import Choices, Progress, Publishing
from kafka_pubsub.cli.routers import count_routers
from kafka_pubsub.cli.types import DURATION, PAIR, MomentType, pairs
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.services.signals import StopFlag, Stopped, stop_flag

__all__ = ["publish"]


@click.command(
    cls=Command,
    examples=[
        ("one message", "kafka-pubsub publish orders 'hello' --key user-123 --attribute kind=created"),
        ("each line of a file", "kafka-pubsub publish orders --file events.jsonl --key-field user.id"),
        ("each line of stdin, `key:data`", "cat events.txt | kafka-pubsub publish orders --key-separator :"),
        ("delivered in ten minutes", "kafka-pubsub publish orders 'remind me' --delay 10m"),
        (
            "before all others, and it may be lost",
            "kafka-pubsub publish jobs 'ping' --priority 9 --transient",
        ),
        ("a record, by the topic's schema", 'kafka-pubsub publish orders \'{"user_id": "ada"}\' --record'),
        ("a whole file as one message", "kafka-pubsub publish images --file photo.jpg --whole"),
    ],
)
@shared.TOPIC
@click.argument("data", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, exists=True, allow_dash=True),
    help="Read from a file; - is stdin.",
)
@click.option("--whole", is_flag=True, help="The file or stdin is one message, not one a line.")
@click.option("--key", help="Ordering key of every message.")
@click.option(
    "--key-field",
    metavar="NAME",
    help="Each line is JSON, and this field is its ordering key (a.b for nested ones).",
)
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, this text, DATA.")
@click.option(
    "--attribute",
    "-a",
    "attributes",
    type=PAIR,
    multiple=True,
    help="An attribute of every message. Can be repeated.",
)
@click.option("--delay", type=DURATION, help="Deliver so much later, e.g. 500ms, 10m or 7d.")
@click.option(
    "--deliver-at",
    type=MomentType(durations="--delay"),
    help="Deliver at that time, e.g. 2030-03-01T08:00 (local time) or 2030-03-01T08:00Z.",
)
@click.option("--record", is_flag=True, help="The data is JSON, and published by the topic's schema.")
@click.option("--priority", type=int, help="The highest goes first.  [default: the topic's middle one]")
@click.option("--transient", is_flag=True, help="The messages may be lost; the topic must take such.")
@click.pass_obj
def publish(
    session: Session,
    topic: str,
    data: str | None,
    path: str | None,
    whole: bool,
    key: str | None,
    key_field: str | None,
    key_separator: str | None,
    attributes: tuple[tuple[str, str], ...],
    delay: float | None,
    deliver_at: datetime | None,
    record: bool,
    priority: int | None,
    transient: bool,
) -> None:
    """Publish DATA, a file, or the lines of stdin.

    With --json one object a message: its id, its key and its line. A delayed message waits until a delay router brings
    it to its topic, and a message to a causal topic until a sequencer does; the command says it if none is running.
    """
    rule = KeyRule.of(key, key_field, key_separator)
    source = _Source(data, path, whole)
    source.check()
    if delay is not None and deliver_at is not None:
        raise click.UsageError("give --delay or --deliver-at, not both")
    given = pairs(attributes, "--attribute")
    # A missing router is noted at the end.
    loggers = () if delay or deliver_at else (PUBLISHING,)
    with (
        noted(session.output, *loggers),
        session.pubsub() as pubsub,
        source.open() as stream,
        stop_flag() as stop,
    ):
        answers = session.output if session.as_json else None
        when = Choices(delay, deliver_at, priority, False if transient else None)
        publishing = Publishing(pubsub.topic(topic), given, answers, when, records=record)
        started = time.monotonic()
        with Progress.shown(source.size, quiet=session.as_json or source.single) as progress:
            try:
                for number, line in enumerate(source.messages(stream, stop), 1):
                    message_key, body = rule.split(line, number)
                    publishing.send(body, message_key, number)
                    progress.advance(len(line) + 1, publishing.stored)
            except PubSubError as error:
                publishing.fail(error)
            except Stopped:
                session.output.note("Stopping; waiting for the broker's answers.")
            publishing.finish()
        publishing.raise_failure()
        if delay or deliver_at:
            count_routers(pubsub, session.output)
    if stop.is_set():
        session.output.note(f"Stopped; published: {counted(publishing.stored, 'message')}.")
        stop.raise_if_set()
    if session.as_json:
        return
    if source.single:
        session.output.line(f"Published {publishing.last_id}")
    else:
        seconds = time.monotonic() - started
        rate = publishing.stored / max(seconds, 1e-6)
        session.output.line(
            f"Published {counted(publishing.stored, 'message')} to {topic} in {seconds:.1f} s ({rate:,.0f}/s)"
        )


@dataclass(frozen=True)
class _Source:
    """The source of the messages."""

    data: str | None
    path: str | None
    whole: bool

    @property
    def single(self) -> bool:
        """Whether the source is one message."""
        return self.data is not None or self.whole

    @property
    def size(self) -> int | None:
        """The bytes to read, if that is known."""
        if self.path is None or self.path == "-" or not os.path.isfile(self.path):
            return None
        return os.path.getsize(self.path)

    def check(self) -> None:
        """Refuses options that contradict each other, and a terminal as stdin."""
        if self.data is not None and (self.path is not None or self.whole):
            raise click.UsageError("give DATA, or --file (with --whole or not), not both")
        if self.data is None and self.path is None and sys.stdin.isatty():
            raise click.UsageError(
                "nothing to publish: give DATA, --file FILE, or lines on stdin (--file - to type them)"
            )

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Opens the stream of bytes; for DATA nothing is read from it."""
        if self.data is not None or self.path in (None, "-"):
            yield sys.stdin.buffer
            return
        with open(str(self.path), "rb") as stream:
            yield stream

    def messages(self, stream: BinaryIO, stop: StopFlag) -> Iterator[bytes]:
        """Yields the messages one after the other."""
        if self.data is not None:
            # What a shell passed as an argument goes back to the very bytes that were typed.
            yield os.fsencode(self.data)
        elif self.whole:
            yield stop.wait_for(stream.read)
        else:
            while line := stop.wait_for(stream.readline):
                yield line.removesuffix(b"\n")
