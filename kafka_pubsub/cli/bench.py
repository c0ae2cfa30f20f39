"""`kafka-pubsub bench`: how fast this client is on your brokers, from this machine.

Each measurement makes a topic of its own, and deletes it at the end, also after Ctrl-C. The comparison with other
clients is `python -m tests.benchmarks`, in a clone of the repository.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.progress import Tell, progress
from kafka_pubsub.cli.types import DURATION

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.cli.measuring import Figures

__all__ = ["bench"]

# click's own type for what it decorates.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _number(name: str, default: int, least: int, most: int, help: str) -> Decorator:
    """Returns an option that is a whole number within bounds."""
    return click.option(name, type=click.IntRange(least, most), default=default, show_default=True, help=help)


_MESSAGES = _number("--messages", 100_000, 1, 100_000_000, "How many messages.")
_SIZE = _number("--size", 1000, 16, 900_000, "Bytes of a message.")
_KEYS = _number("--keys", 1000, 1, 1_000_000, "Different ordering keys.")
_PARTITIONS = _number("--partitions", 8, 1, 1000, "Partitions of the topic.")
_REPEAT = _number("--repeat", 1, 1, 100, "Measure so many times, each with a new topic: a row for each.")


@click.group(
    cls=Group,
    examples=[
        ("how many messages a second can be published", "kafka-pubsub bench publish"),
        ("and received, in order by key, each acked", "kafka-pubsub bench pull --messages 500000"),
        ("how long one takes at 2,000 a second", "kafka-pubsub bench latency --rate 2000 --seconds 30"),
        ("three times, for a program", "kafka-pubsub bench publish --repeat 3 --json"),
    ],
)
def bench() -> None:
    """Measure publishing and receiving on your own brokers.

    The figures are of this machine and the brokers together: run it from where your program runs. Nothing of your
    own topics is touched; the topic and the subscription that a measurement makes are deleted at its end.
    """


@bench.command(
    cls=Command,
    examples=[
        ("a hundred thousand messages of 1,000 bytes", "kafka-pubsub bench publish"),
        ("small ones, of one key", "kafka-pubsub bench publish --size 100 --keys 1"),
    ],
)
@_MESSAGES
@_SIZE
@_KEYS
@_PARTITIONS
@_REPEAT
@click.pass_obj
def publish(session: Session, messages: int, size: int, keys: int, partitions: int, repeat: int) -> None:
    """Messages a second that can be published, each acknowledged by all in-sync replicas."""
    from kafka_pubsub.cli.measuring import Load, measure_publishing

    load = Load(messages, size, keys, partitions)
    _run(session, repeat, lambda pubsub, tell: measure_publishing(pubsub, load, tell))


@bench.command(
    cls=Command,
    examples=[
        ("with a callback that only acks", "kafka-pubsub bench pull"),
        ("with one that takes 5 ms, on 100 threads", "kafka-pubsub bench pull --work 5ms --workers 100"),
    ],
)
@_MESSAGES
@_SIZE
@_KEYS
@_PARTITIONS
@click.option(
    "--work",
    type=DURATION,
    default=0.0,
    help="How long the callback sleeps before it acks, e.g. 5ms.  [default: it only acks]",
)
@click.option("--workers", type=click.IntRange(1, 10_000), help="Callbacks at a time.  [default: 16]")
@_REPEAT
@click.pass_obj
def pull(
    session: Session,
    messages: int,
    size: int,
    keys: int,
    partitions: int,
    work: float,
    workers: int | None,
    repeat: int,
) -> None:
    """Messages a second that a subscription delivers, in order by key, each acked by its callback.

    They are published before; what is measured begins with the first delivery.
    """
    from kafka_pubsub.cli.measuring import Load, measure_pulling

    load = Load(messages, size, keys, partitions)
    _run(
        session, repeat, lambda pubsub, tell: measure_pulling(pubsub, load, tell, work=work, workers=workers)
    )


@bench.command(
    cls=Command,
    examples=[("", "kafka-pubsub bench latency --rate 5000 --seconds 30")],
)
@_number("--rate", 1000, 1, 100_000, "Messages a second.")
@_number("--seconds", 10, 1, 3600, "For how long, after 2 s to warm up.")
@_SIZE
@_KEYS
@_PARTITIONS
@_REPEAT
@click.pass_obj
def latency(
    session: Session, rate: int, seconds: int, size: int, keys: int, partitions: int, repeat: int
) -> None:
    """Milliseconds from publish to callback, at a steady rate.

    A message counts from the moment at which the timetable has it, so that a publisher that falls behind makes the
    figures worse, not better.
    """
    from kafka_pubsub.cli.measuring import Load, measure_latency

    load = Load(rate * seconds, size, keys, partitions)
    _run(session, repeat, lambda pubsub, tell: measure_latency(pubsub, load, tell, rate=rate))


def _run(session: Session, repeat: int, measure: Callable[[PubSub, Tell], Figures]) -> None:
    with session.pubsub() as pubsub, progress(session.output) as tell:
        rows = [measure(pubsub, tell) for _ in range(repeat)]
    session.output.table(rows, list(rows[0]), "")
