"""`pull`: shows what a subscription receives.

Rules
1. A message is written and flushed before it is acked: if the reader of stdout has closed it (`| head`), the messages
   that it didn't get are delivered again.
2. Without `--ack` it only looks: nothing is acked or nacked, so every message is given back, its attempts uncounted,
   when the subscription is closed. A key's next message waits for that ack, so of each key the first one is shown.
3. A reader may be slow (`| less`), so the leases are extended far beyond the ack deadline; the command ends them.
4. One thread does it all, so messages are shown in the order in which they were delivered.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli import options as shared
from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.log_notes import OUTAGES, noted
from kafka_pubsub.cli.messages import Shown, with_forms
from kafka_pubsub.cli.types import DURATION
from kafka_pubsub.services.signals import StopFlag, stop_flag

if TYPE_CHECKING:
    from kafka_pubsub.model import Message
    from kafka_pubsub.subscription import Subscription

__all__ = ["pull"]

# For the first message: joining takes a moment, and a killed member's partitions come after its session of 6 s.
FIRST_TIMEOUT_S = 10.0
# For the next one: what is waiting comes within milliseconds.
NEXT_TIMEOUT_S = 2.0
# The longest lease there is, and when it is renewed.
LEASE_S = 600.0
RENEWAL_S = 300.0
# Messages taken at a time: many enough to be quick, few enough that none waits for its ack when a reader is slow.
BATCH = 500
# How long a signal may go unnoticed.
STEP_S = 0.2


@click.command(
    cls=Command,
    examples=[
        ("look at the messages that wait now", "kafka-pubsub pull billing"),
        ("take it", "kafka-pubsub pull billing --ack"),
        ("go on until Ctrl-C", "kafka-pubsub pull billing --ack --follow"),
        ("for a program", "kafka-pubsub pull billing --ack --json --max 100 | jq -r .data"),
        (
            "records, by their schemas",
            "KAFKA_PUBSUB_SCHEMAS=http://registry:8081 kafka-pubsub pull billing --decode",
        ),
    ],
)
@shared.SUBSCRIPTION
@click.option("--follow", "-f", is_flag=True, help="Wait for more until Ctrl-C or SIGTERM (exit code 0).")
@click.option(
    "--ack/--no-ack",
    default=False,
    show_default=True,
    help="Ack what was shown, or only look: it is delivered again, and no attempt is counted. An ordered "
    "subscription then shows the first message of each key: the next one waits for its ack.",
)
@click.option("--max", "limit", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option(
    "--timeout",
    type=DURATION,
    help=f"End when nothing came for so long.  [default: {FIRST_TIMEOUT_S:g}s for the first message and "
    f"{NEXT_TIMEOUT_S:g}s for the next; never with --follow]",
)
@with_forms
@click.pass_obj
def pull(
    session: Session,
    subscription: str,
    follow: bool,
    ack: bool,
    limit: int | None,
    timeout: float | None,
    data_only: bool,
    full: bool,
    decode: bool,
) -> None:
    """Show messages of a subscription; ack them with --ack.

    Ends when nothing is left to receive, unless --follow. While it runs it is a member of the group, and other
    members don't get the messages of its partitions; `peek` looks without that. With --json each line is one message:
    message_id, ordering_key, data, attributes, publish_time, attempt, priority, durable; what isn't UTF-8 is
    base64, and `data_encoding` or `key_encoding` says so.
    """
    shown = Shown(session, data_only=data_only, full=full, decode=decode)
    if timeout is not None:
        limits = _Limits(limit, timeout, timeout)
    elif follow:
        limits = _Limits(limit, math.inf, math.inf)
    else:
        limits = _Limits(limit, FIRST_TIMEOUT_S, NEXT_TIMEOUT_S)
    with (
        noted(session.output, *((OUTAGES,) if follow else ())),
        stop_flag() as stop,
        session.pubsub() as pubsub,
        pubsub.subscription(subscription) as source,
    ):
        for message in _messages(source, limits, stop, keep=not ack):
            shown.show(message)
            if ack:
                message.ack()
    shown.end()
    if not follow:
        stop.raise_if_set()
    if not shown.count:
        session.output.note(f"Nothing came from {subscription}.")
    elif not ack:
        session.output.note(
            f"Nothing was acked, so all of it is delivered again: --ack takes it. `kafka-pubsub peek {subscription}` "
            "also shows the messages behind it."
        )


@dataclass(frozen=True)
class _Limits:
    """The limits of a pull: a number of messages, and seconds without one."""

    count: int | None
    first: float
    following: float


def _messages(source: Subscription, limits: _Limits, stop: StopFlag, *, keep: bool) -> Iterator[Message]:
    """Yields messages until there were enough, none comes any more, or a signal asks to stop."""
    left = limits.count
    patience, last = limits.first, time.monotonic()
    kept: list[Message] = []
    renewed = time.monotonic()
    while not stop.is_set() and left != 0:
        batch = source.receive(BATCH if left is None else min(BATCH, left), timeout=STEP_S)
        if batch:
            for message in batch:
                message.extend(LEASE_S)
            yield from itertools.takewhile(lambda _: not stop.is_set(), batch)
            left = None if left is None else left - len(batch)
            kept += batch if keep else ()
            patience, last = limits.following, time.monotonic()
        elif time.monotonic() - last >= patience:
            return
        if time.monotonic() - renewed > RENEWAL_S:
            renewed = time.monotonic()
            for message in kept:
                message.extend(LEASE_S)
