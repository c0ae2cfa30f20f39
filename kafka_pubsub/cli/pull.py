"""`pull`: shows what a subscription receives.

Rules
1. A message is written and flushed before it is acked: if the reader of stdout has closed it (`| head`), the messages
   that it didn't get are delivered again.
2. `--no-ack` only looks: nothing is acked or nacked, so every message is given back, its attempts uncounted, when
   the subscription is closed. A key's next message waits for that ack, so of each key the first one is shown.
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

from kafka_pubsub.cli.command import Command
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, printable, shown_bytes, text_or_base64, to_json
from kafka_pubsub.cli.signals import StopFlag, stop_flag
from kafka_pubsub.cli.types import DURATION
from kafka_pubsub.core.lanes.names import lane_of

if TYPE_CHECKING:
    from kafka_pubsub.client.subscribe.subscription import Subscription
    from kafka_pubsub.model import Message

__all__ = ["message_json", "pull"]

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
        ("what is waiting now", "kafka-pubsub pull billing"),
        ("go on until Ctrl-C", "kafka-pubsub pull billing --follow"),
        ("look without taking", "kafka-pubsub pull billing --no-ack --max 5"),
        ("for a program", "kafka-pubsub pull billing --json --max 100 | jq -r .data"),
    ],
)
@click.argument("subscription")
@click.option("--follow", "-f", is_flag=True, help="Wait for more until Ctrl-C or SIGTERM (exit code 0).")
@click.option(
    "--ack/--no-ack",
    default=True,
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
@click.option("--data-only", is_flag=True, help="Only the data, its bytes untouched, one message a line.")
@click.pass_obj
def pull(
    session: Session,
    subscription: str,
    follow: bool,
    ack: bool,
    limit: int | None,
    timeout: float | None,
    data_only: bool,
) -> None:
    """Show messages of a subscription, and ack them.

    Ends when nothing is left to receive, unless --follow. While it runs it is a member of the group, and other
    members don't get what its partitions hold. With --json each line is one message:
    message_id, ordering_key, data, attributes, publish_time, attempt, priority, durable; what isn't UTF-8 is
    base64, and `data_encoding` or `key_encoding` says so.
    """
    if data_only and session.as_json:
        raise click.UsageError("--data-only and --json exclude each other: give one")
    if timeout is not None:
        limits = _Limits(limit, timeout, timeout)
    elif follow:
        limits = _Limits(limit, math.inf, math.inf)
    else:
        limits = _Limits(limit, FIRST_TIMEOUT_S, NEXT_TIMEOUT_S)
    shown = 0
    with stop_flag() as stop, session.pubsub() as pubsub:
        for message in _messages(pubsub.subscription(subscription), limits, stop, keep=not ack):
            session.output.line(_render(message, as_json=session.as_json, data_only=data_only))
            shown += 1
            if ack:
                message.ack()
    if not follow:
        stop.raise_if_set()
    if not shown:
        session.output.note(f"Nothing came from {subscription}.")


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


def _render(message: Message, *, as_json: bool, data_only: bool) -> bytes:
    if data_only:
        return message.data
    if as_json:
        return to_json(message_json(message))
    parts = [message.publish_time.astimezone().strftime("%H:%M:%S.%f")[:-3]]
    if lane_of(message.topic) is not None:
        parts.append(f"(priority {message.priority}{'' if message.durable else ', transient'})")
    if message.key is not None:
        parts.append(f"[{printable(message.key)}]")
    if message.delivery_attempt > 1:
        parts.append(f"(attempt {message.delivery_attempt})")
    parts.append(printable(message.data))
    parts += [f"{printable(name)}={printable(value)}" for name, value in message.attributes.items()]
    return "  ".join(parts).encode()


def message_json(message: Message) -> dict[str, JsonValue]:
    """Returns a message as `--json` shows it; bytes that aren't text are kept as base64."""
    shown: dict[str, JsonValue] = {
        "message_id": message.message_id,
        **shown_bytes("ordering_key", message.key, marked="key"),
        **shown_bytes("data", message.data),
    }
    if message.tombstone:
        shown["tombstone"] = True
    shown["attributes"], binary = _attributes(message)
    if binary:
        shown["attributes_encoding"] = dict.fromkeys(binary, "base64")
    shown["publish_time"] = message.publish_time.isoformat(timespec="milliseconds")
    shown["attempt"] = message.delivery_attempt
    shown["priority"], shown["durable"] = message.priority, message.durable
    return shown


def _attributes(message: Message) -> tuple[dict[str, JsonValue], list[str]]:
    shown: dict[str, JsonValue] = {}
    binary = []
    for name, value in message.attributes.items():
        raw = value.encode("utf-8", "surrogateescape")
        text, is_base64 = text_or_base64(raw)
        shown[name] = text
        if is_base64:
            binary.append(name)
    return shown, binary
