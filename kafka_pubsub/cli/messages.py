"""Messages as `pull`, `peek` and `topic tail` show them: a line for a person, JSON, or the body alone.

Rule: at a terminal a body is cut, so that one message can't push all others out of sight. A pipe, `--json` and
`--data-only` get it whole, and so does a terminal with `--full`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, at_terminal, printable, shown_bytes, text_or_base64, to_json
from kafka_pubsub.cli.types import ago
from kafka_pubsub.lane_names import lane_of
from kafka_pubsub.looks.message import PeekedMessage

if TYPE_CHECKING:
    from kafka_pubsub.model import Message

__all__ = ["Shown", "message_json", "with_forms"]

#: The least characters of a body that a terminal shows.
LEAST = 60


def with_forms(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say in which form messages are shown."""
    data_only = click.option(
        "--data-only", is_flag=True, help="Only the data, its bytes untouched, one message a line."
    )
    full = click.option("--full", is_flag=True, help="Don't cut long bodies, which a terminal does.")
    result: Callable[..., Any] = data_only(full(command))
    return result


class Shown:
    """The messages that one command shows."""

    def __init__(self, session: Session, *, data_only: bool, full: bool) -> None:
        if data_only and session.as_json:
            raise click.UsageError("--data-only and --json exclude each other: give one")
        self._session = session
        self._data_only = data_only
        #: The most characters of a body; None: all.
        self._room = max(LEAST, shutil.get_terminal_size().columns) if at_terminal() and not full else None
        #: How many messages were shown, and how many of their bodies were cut.
        self.count = self._cut = 0

    def show(self, message: Message) -> None:
        """Writes one message, and flushes it."""
        self._session.output.line(self._render(message))
        self.count += 1

    def end(self) -> None:
        """Says that bodies were cut, if any were."""
        if self._cut:
            bodies = "1 body was" if self._cut == 1 else f"{self._cut:,} bodies were"
            self._session.output.note(f"{bodies} cut: --full shows everything.")

    def _render(self, message: Message) -> bytes:
        if self._data_only:
            return message.data
        if self._session.as_json:
            return to_json(message_json(message))
        parts = [message.publish_time.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]]
        if lane_of(message.topic) is not None:
            parts.append(f"(priority {message.priority}{'' if message.durable else ', transient'})")
        if message.key is not None:
            parts.append(f"[{printable(message.key)}]")
        if message.delivery_attempt > 1:
            parts.append(f"(attempt {message.delivery_attempt})")
        if isinstance(message, PeekedMessage) and message.state != "ready":
            due = "" if message.next_due is None else f", due {ago(message.next_due)}"
            parts.append(f"({message.state}{due})")
        parts.append(self._body(message))
        parts += [f"{printable(name)}={printable(value)}" for name, value in message.attributes.items()]
        return "  ".join(parts).encode()

    def _body(self, message: Message) -> str:
        text = printable(message.data)
        if self._room is None or len(text) <= self._room:
            return text
        self._cut += 1
        return f"{text[: self._room]}… ({len(message.data):,} bytes)"


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
    if isinstance(message, PeekedMessage):
        due = message.next_due
        shown["state"] = message.state
        shown["next_due"] = None if due is None else due.isoformat(timespec="milliseconds")
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
