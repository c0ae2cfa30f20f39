"""A record of a dead-letter topic, read back: the message, its origin, and the record that brings it back.

Theory. A dead letter is the user's record with the texts of `record.dead_headers`. Any client can read them, and
any client can have written them, so they are checked before a dead letter counts. Replaying turns a dead letter
into a record of the retry topic again: the user's own key, value, headers and timestamp, an origin, and attempts that
begin anew.

Rules
1. A record without the name of a subscription is no dead letter of ours, whatever its other headers are.
2. A dead letter without a whole origin can be shown, not replayed (`origin` is None): its order is unknown.
3. A replayed message carries `ps-replayed`, how often it was replayed; the next dead letter keeps the count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_pubsub.model import ID_HEADER, Header, StoredRecord
from kafka_pubsub.subscribe.formats.record import DEAD_PREFIX, RETRY_HEADER, RetryInfo, Why, retry_headers

__all__ = [
    "REPLAYED_HEADER",
    "DeadLetterRecord",
    "Origin",
    "own_headers",
    "read_dead_letter",
    "replay_headers",
]

REPLAYED_HEADER = "ps-replayed"

_MOST = 2**63 - 1


class Origin(NamedTuple):
    """Where the message was published."""

    topic_id: str
    partition: int
    offset: int


class DeadLetterRecord(NamedTuple):
    """The fields of a dead letter. Times are milliseconds of the wall clock, 0 if they are missing."""

    subscription: str
    topic: str = ""
    reason: str = ""
    error_class: str = ""
    error: str = ""
    time: int = 0
    origin: Origin | None = None
    attempts: int = 0
    crashes: int = 0
    failed_since: int = 0
    #: How often it was replayed before.
    replays: int = 0


def read_dead_letter(headers: Sequence[Header] | None) -> DeadLetterRecord | None:
    """Returns the dead letter that a record's headers describe; None: it isn't one of ours."""
    said = {
        name[len(DEAD_PREFIX) :]: value.decode("utf-8", "replace")
        for name, value in headers or ()
        if value is not None and name.startswith(DEAD_PREFIX)
    }
    subscription = said.get("subscription")
    if not subscription:
        return None
    return DeadLetterRecord(
        subscription,
        said.get("topic", ""),
        said.get("reason", ""),
        said.get("error-class", ""),
        said.get("error", ""),
        _number(said.get("time")) or 0,
        _origin(said),
        _number(said.get("attempts")) or 0,
        _number(said.get("crashes")) or 0,
        _number(said.get("failed-since")) or 0,
        replays_of(headers),
    )


def _origin(said: Mapping[str, str]) -> Origin | None:
    topic_id, partition, offset = (
        said.get("topic-id"),
        _number(said.get("partition")),
        _number(said.get("offset")),
    )
    if not topic_id or partition is None or offset is None:
        return None
    return Origin(topic_id, partition, offset)


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    number = int(text)
    return number if number <= _MOST else None


def replays_of(headers: Sequence[Header] | None) -> int:
    """Returns how often the message was replayed."""
    values = [value for name, value in headers or () if name == REPLAYED_HEADER and value]
    return (_number(values[-1].decode("ascii", "replace")) or 0) if values else 0


def own_headers(headers: Sequence[Header] | None) -> list[Header]:
    """Returns the headers that the message was published with, and the id of one that was relayed."""
    said = {name: value or b"" for name, value in headers or () if name.startswith(DEAD_PREFIX)}
    place = b":".join(said.get(DEAD_PREFIX + name, b"") for name in ("topic", "partition", "offset"))
    ours = {(ID_HEADER, place)}  # as `record.dead_headers` adds it
    return [
        header
        for header in headers or ()
        if not header[0].startswith(DEAD_PREFIX)
        and header[0] not in (REPLAYED_HEADER, RETRY_HEADER)
        and header not in ours
    ]


def replay_headers(record: StoredRecord, origin: Origin) -> list[Header]:
    """Returns the headers of the record in the retry topic that replays the dead letter."""
    headers = record.headers()
    count = str(replays_of(headers) + 1).encode()
    info = RetryInfo(origin.topic_id, origin.partition, origin.offset, why=Why.REPLAYED)
    return retry_headers([*own_headers(headers), (REPLAYED_HEADER, count)], info)
