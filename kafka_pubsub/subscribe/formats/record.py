"""A record of the retry topic and of the dead-letter topic: the user's record unchanged, and headers of ours.

Theory. A move copies key, value, headers and timestamp as they are and appends `ps-retry`, which holds the message's
origin, the number of its next delivery, when it is due and why it was moved. A reader of the retry partition
turns such a record back into the message that was published: `RetryRecord` has the origin's topic and offset.

Layout of `ps-retry`, big endian: version, why, partition (4), origin (8), attempt (2), crashes (1), due and first
failure in milliseconds of the wall clock (8 each), length of the topic's id (1) and of the error's text (2), both
texts in UTF-8, checksum (4).

Rules
1. A record whose header is missing, damaged or of another partition's origin is `Broken`, with a reason for the
   operator. It is never taken for a message, and never dropped: its raw bytes go to the dead letters.
2. Numbers that outgrow their field stay at the largest that fits; texts are cut at whole characters.
3. A header of ours replaces an older one of the same name, so that a message moved a hundred times carries one.
4. In every version the first byte is the version and the last four are the checksum. A header of a newer version is
   refused (`FailedPrecondition`): the message in it must neither be dead-lettered nor be taken for another one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import ID_HEADER, Header, StoredRecord

__all__ = [
    "DEAD_PREFIX",
    "ERROR_BYTES",
    "FOREVER",
    "NO_MESSAGES",
    "REQUESTS",
    "RETRY_HEADER",
    "Broken",
    "Death",
    "RetryInfo",
    "RetryRecord",
    "Scan",
    "Waits",
    "Why",
    "attempt_of",
    "dead_headers",
    "decode",
    "encode",
    "is_checkpoint",
    "read",
    "retry_headers",
]

RETRY_HEADER = "ps-retry"
DEAD_PREFIX = "ps-dead-"

#: Bytes of an error's text that travel with a message: a screenful, small beside any record.
ERROR_BYTES = 512
#: Milliseconds; the due time of a message that is parked until it is released.
FOREVER = 2**62

_VERSION = 1
_FIXED = struct.Struct(">BBIQHBqqBH")
#: The part of these fields with origin, attempt, crashes and due.
_NUMBERS = struct.Struct(">QHBq")
_CHECKSUM = struct.Struct(">I")
#: The place of the origin, and of the length of the topic's id.
_ORIGIN, _ID_SIZE = slice(6, 14), 33


class Why(IntEnum):
    """Why a message lies in the retry topic."""

    NACKED = 0  #: nacked, or its callback raised
    EXPIRED = 1  #: it was neither acked nor nacked before its deadline
    BACKLOG = 2  #: it waited behind a message that was parked or slow; never delivered itself
    CRASHED = 4  #: its process died while its callback was the only suspect
    EXHAUSTED = 5  #: attempts used up, parked until released
    REPLAYED = 6  #: a command put it here
    RELEASE = 7  #: no message: a command asks to release the parked message of this key and origin
    DROP = 8  #: no message: a command asks to dead-letter such a parked message
    UNBURIED = 9  #: attempts used up: to become a dead letter, not to be delivered
    CHECKPOINT = 10  #: no message: a record of a checkpoint (`checkpoint`)
    DELAYED = 11  #: nacked with a delay that the callback chose
    REJECTED = 12  #: its callback gave it up: to become a dead letter, or parked until released


_CHECKPOINT = bytes([Why.CHECKPOINT])
_REASONS = {why.value: why for why in Why}
#: The reasons of records that are requests.
REQUESTS = frozenset({Why.RELEASE, Why.DROP})
#: The reasons of records that aren't messages.
NO_MESSAGES = REQUESTS | {Why.CHECKPOINT}


class RetryInfo(NamedTuple):
    """The content of `ps-retry`. Times are milliseconds of the wall clock."""

    topic_id: str
    partition: int
    #: The offset at which it was published.
    origin: int
    #: The number of its next delivery.
    attempt: int = 1
    #: How often it was the only suspect when its process died.
    crashes: int = 0
    #: The time before which it isn't delivered.
    due: int = 0
    why: Why = Why.NACKED
    #: When it failed first, and its last error; 0 and "": it never failed.
    failed: int = 0
    error: str = ""


#: Origin, attempt, crashes, due (milliseconds of the wall clock) and why (`Why`) of a message that waits.
Waits = tuple[int, int, int, int, int]


class Broken(NamedTuple):
    """A record that can't be read, with the reason for the operator."""

    reason: str


class Death(NamedTuple):
    """The reason and the time of a dead-lettering, as the dead letter holds them."""

    topic: str
    subscription: str
    reason: str
    error_class: str = ""
    error: str = ""
    #: Milliseconds of the wall clock.
    time: int = 0


class RetryRecord:
    """The message that was published, as the retry topic holds it: `offset` is its origin."""

    __slots__ = ("_topic", "info", "stored")

    def __init__(self, stored: StoredRecord, info: RetryInfo, topic: str) -> None:
        #: The record as it lies in the retry topic.
        self.stored = stored
        self.info = info
        self._topic = topic

    @property
    def retry_offset(self) -> int:
        """The offset at which it lies in the retry partition."""
        return self.stored.offset() or 0

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self.info.partition

    def offset(self) -> int:
        return self.info.origin

    def key(self) -> bytes | None:
        return self.stored.key()

    def value(self) -> bytes | None:
        return self.stored.value()

    def headers(self) -> list[Header]:
        return [header for header in self.stored.headers() or () if header[0] != RETRY_HEADER]

    def timestamp(self) -> tuple[int, int]:
        return self.stored.timestamp()

    def leader_epoch(self) -> int | None:
        return self.stored.leader_epoch()

    def __len__(self) -> int:
        return len(self.stored)


def cut(text: str, size: int) -> bytes:
    """Returns the text in UTF-8, cut to `size` bytes at a whole character."""
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= size else raw[:size].decode("utf-8", "ignore").encode()


def encode(info: RetryInfo) -> bytes:
    """Returns the value of `ps-retry`."""
    topic_id, error = cut(info.topic_id, 255), cut(info.error, ERROR_BYTES)
    body = (
        _FIXED.pack(
            _VERSION,
            info.why,
            info.partition,
            info.origin,
            min(info.attempt, 0xFFFF),
            min(info.crashes, 0xFF),
            min(info.due, FOREVER),
            info.failed,
            len(topic_id),
            len(error),
        )
        + topic_id
        + error
    )
    return body + _CHECKSUM.pack(crc32(body))


def decode(value: bytes | None) -> RetryInfo | Broken:
    """Returns the content of a `ps-retry` header; raises if it is of a newer version (rule 4)."""
    if not value:
        return Broken(f"its {RETRY_HEADER} header is empty")
    body = value[: -_CHECKSUM.size]
    if not body or _CHECKSUM.unpack(value[-_CHECKSUM.size :])[0] != crc32(body):
        return Broken(f"its {RETRY_HEADER} header is damaged")
    if value[0] > _VERSION:
        raise FailedPrecondition(
            f"its {RETRY_HEADER} header is of version {value[0]}, and this client reads versions up to {_VERSION}: a "
            "newer kafka_pubsub has written it. Nothing is delivered, because that message would be lost; update "
            "this process"
        )
    if value[0] != _VERSION or len(body) < _FIXED.size:
        return Broken(f"its {RETRY_HEADER} header has version {value[0]}, this client reads {_VERSION}")
    _, why, partition, origin, attempt, crashes, due, failed, id_size, error_size = _FIXED.unpack_from(body)
    at = _FIXED.size + id_size
    if len(body) != at + error_size or why not in _REASONS:
        return Broken(f"its {RETRY_HEADER} header contradicts itself")
    topic_id = body[_FIXED.size : at].decode("utf-8", "replace")
    error = body[at:].decode("utf-8", "replace")
    return RetryInfo(topic_id, partition, origin, attempt, crashes, due, _REASONS[why], failed, error)


def attempt_of(record: Record) -> int:
    """Returns the number that the record's next delivery has."""
    return record.info.attempt + record.info.crashes if isinstance(record, RetryRecord) else 1


def read(record: StoredRecord, topic: str, topic_id: str, partition: int) -> RetryRecord | Broken:
    """Returns the message in a record of the retry topic of partition `partition` of `topic`."""
    values = [value for name, value in record.headers() or () if name == RETRY_HEADER]
    if len(values) != 1:
        return Broken(f"it has {len(values)} {RETRY_HEADER} headers instead of one")
    try:
        info = decode(values[0])
    except FailedPrecondition as newer:
        where = f"offset {record.offset()} of the retry topic of {topic!r}, partition {partition}"
        raise FailedPrecondition(f"{where}: {newer.message}") from None
    if isinstance(info, Broken):
        return info
    if info.topic_id != topic_id or info.partition != partition:
        return Broken(
            f"it comes from partition {info.partition} of the topic with id {info.topic_id!r}, "
            f"not from partition {partition} of {topic} (id {topic_id!r})"
        )
    return RetryRecord(record, info, topic)


def is_checkpoint(headers: Sequence[Header]) -> bool:
    """Returns whether a record with these headers belongs to a checkpoint."""
    name, value = headers[0] if headers else ("", None)
    if name != RETRY_HEADER or value is None or value[1:2] != _CHECKPOINT:
        return False
    return isinstance(decode(value), RetryInfo)


class Scan:
    """A reader of the headers of waiting records: it checks that they are this partition's and leaves texts alone."""

    def __init__(self, topic_id: str, partition: int) -> None:
        self._raw_id = cut(topic_id, 255)
        #: Why it waits, by the first bytes of the header.
        self._reasons = {
            encode(RetryInfo(topic_id, partition, 0, why=why))[: _ORIGIN.start]: why.value
            for why in Why
            if why not in NO_MESSAGES
        }
        like = encode(RetryInfo(topic_id, partition, 0, why=Why.BACKLOG))
        # In most headers everything is the same but the origin and the checksum.
        self._size, self._before, self._after = len(like), like[: _ORIGIN.start], like[_ORIGIN.stop : -4]
        self._before_checked = crc32(self._before)
        self._parts = struct.Struct(f">{len(self._before)}sQ{len(self._after)}sI")

    def follower(self, headers: Sequence[Header] | None) -> int:
        """Returns the origin of a message that only waits behind others; -1: the record needs a closer look."""
        if not headers or len(headers) > 1 or headers[0][0] != RETRY_HEADER:
            return -1
        value = headers[0][1]
        if value is None or len(value) != self._size:
            return -1
        before, origin, after, checksum = self._parts.unpack(value)
        if before != self._before or after != self._after:
            return -1
        if crc32(value[_ORIGIN.start : -4], self._before_checked) != checksum:
            return -1
        return int(origin)

    def read(self, headers: Sequence[Header] | None) -> Waits | None:
        """Returns the content of the last header, if it is ours and the only one; None: it needs a closer look."""
        if not headers or headers[-1][0] != RETRY_HEADER:
            return None
        value = headers[-1][1]
        if value is None or len(value) < _FIXED.size + 4 or crc32(value[:-4]) != int.from_bytes(value[-4:]):
            return None
        why = self._reasons.get(value[: _ORIGIN.start])
        if (
            why is None
            or value[_ID_SIZE] != len(self._raw_id)
            or not value.startswith(self._raw_id, _FIXED.size)
        ):
            return None
        if len(headers) > 1 and any(name == RETRY_HEADER for name, _ in headers[:-1]):
            return None
        origin, attempt, crashes, due = _NUMBERS.unpack_from(value, _ORIGIN.start)
        return origin, attempt, crashes, due, why


def retry_headers(headers: Sequence[Header] | None, info: RetryInfo, value: bytes = b"") -> list[Header]:
    """Returns the headers of the moved record; `value`: the value of `ps-retry`, if it is encoded already."""
    ours = (RETRY_HEADER, value or encode(info))
    return [*(header for header in headers if header[0] != RETRY_HEADER), ours] if headers else [ours]


def dead_headers(headers: Sequence[Header] | None, info: RetryInfo | Broken, death: Death) -> list[Header]:
    """Returns the headers of the dead letter, which any client can read: they are texts.

    A broken record keeps all of its own headers, its damaged `ps-retry` included. Another message gets the header
    `ps-id`, if it has none: its id stays that of the message that was published.
    """
    said = [
        ("topic", death.topic),
        ("subscription", death.subscription),
        ("reason", death.reason),
        ("error-class", death.error_class),
        ("error", death.error),
        ("time", str(death.time)),
    ]
    kept = [header for header in headers or () if not header[0].startswith(DEAD_PREFIX)]
    if isinstance(info, RetryInfo):
        kept = [header for header in kept if header[0] != RETRY_HEADER]
        if all(name != ID_HEADER for name, _ in kept):
            kept.append((ID_HEADER, f"{death.topic}:{info.partition}:{info.origin}".encode()))
        said += [
            ("topic-id", info.topic_id),
            ("partition", str(info.partition)),
            ("offset", str(info.origin)),
            ("attempts", str(info.attempt + info.crashes)),
            ("crashes", str(info.crashes)),
            ("failed-since", str(info.failed)),
        ]
    return [*kept, *((DEAD_PREFIX + name, cut(text, ERROR_BYTES)) for name, text in said)]
