"""Messages as `pull`, `peek` and `topic tail` show them: a line for a person, JSON, or the body alone; or as records.

Rule: at a terminal a body is cut, so that one message can't push all others out of sight. A pipe, `--json` and
`--data-only` get it whole, and so does a terminal with `--full`.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from datetime import date, time
from typing import TYPE_CHECKING, Any

import click

from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue, at_terminal, printable, shown_bytes, text_or_base64, to_json
from kafka_pubsub.cli.types import ago
from kafka_pubsub.errors import BadRecord
from kafka_pubsub.lane_names import lane_of
from kafka_pubsub.looks.message import PeekedMessage

if TYPE_CHECKING:
    from kafka_pubsub.model import Message

__all__ = ["DECODE", "Shown", "message_json", "plain", "with_forms"]

#: The help of an option.
DECODE = "Show the record, by its schema; KAFKA_PUBSUB_SCHEMAS says where schemas lie."

#: The least characters of a body that a terminal shows.
LEAST = 60


def with_forms(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say in which form messages are shown."""
    data_only = click.option(
        "--data-only", is_flag=True, help="Only the data, its bytes untouched, one message a line."
    )
    full = click.option("--full", is_flag=True, help="Don't cut long bodies, which a terminal does.")
    decode = click.option("--decode", is_flag=True, help=DECODE)
    result: Callable[..., Any] = data_only(full(decode(command)))
    return result


class Shown:
    """The messages that one command shows."""

    def __init__(self, session: Session, *, data_only: bool, full: bool, decode: bool) -> None:
        if data_only and session.as_json:
            raise click.UsageError("--data-only and --json exclude each other: give one")
        self._session = session
        self._data_only = data_only
        self._decode = decode
        #: The most characters of a body; None: all.
        self._room = max(LEAST, shutil.get_terminal_size().columns) if at_terminal() and not full else None
        #: How many messages were shown, of how many the bodies were cut, and how many aren't records.
        self.count = self._cut = self._raw = 0

    def show(self, message: Message) -> None:
        """Writes one message, and flushes it."""
        self._session.output.line(self._render(message))
        self.count += 1

    def end(self) -> None:
        """Says that bodies were cut, if any were."""
        if self._cut:
            bodies = "1 body was" if self._cut == 1 else f"{self._cut:,} bodies were"
            self._session.output.note(f"{bodies} cut: --full shows everything.")
        if self._raw:
            raw = "1 message isn't a record" if self._raw == 1 else f"{self._raw:,} messages aren't records"
            self._session.output.note(f"{raw}, and shown as it is: --json says why.")

    def _render(self, message: Message) -> bytes:
        record = self._record(message)
        if self._data_only:
            return message.data if record is None else to_json(record["record"])
        if self._session.as_json:
            return to_json(message_json(message) | (record or {}))
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
        parts.append(self._body(message, record))
        parts += [f"{printable(name)}={printable(value)}" for name, value in message.attributes.items()]
        return "  ".join(parts).encode()

    def _record(self, message: Message) -> dict[str, JsonValue] | None:
        """Returns the fields of a record, None if records aren't wanted; what isn't a record is shown as it is."""
        if not self._decode:
            return None
        try:
            return {"record": plain(message.record())}
        except BadRecord as error:
            self._raw += 1
            if self._session.as_json:
                return {"record": None, "problem": error.message}
            return None

    def _body(self, message: Message, record: dict[str, JsonValue] | None) -> str:
        text = printable(message.data if record is None else to_json(record["record"]))
        if self._room is None or len(text) <= self._room:
            return text
        self._cut += 1
        return f"{text[: self._room]}… ({len(message.data):,} bytes)"


def plain(value: object) -> JsonValue:
    """Returns a record's value as JSON can show it: bytes as text or base64, and times, numbers and ids as text."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return text_or_base64(value)[0]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


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
