"""A record of the retry topic, and of the dead-letter topic: the user's record untouched, one header of ours more.

Theory. Relocating copies key, value, headers and timestamp as they are and appends `ps-retry`, which says where the
message comes from, which delivery comes next, when it is due and why it was moved. What reads the retry partition
turns such a record back into the message that was published: `RetryRecord` has the origin's topic and offset.

Layout of `ps-retry`, big endian: version, why, partition (4), origin (8), attempt (2), crashes (1), due and first
failure in milliseconds of the wall clock (8 each), length of the topic's id (1) and of the error's text (2), both
texts in UTF-8, checksum (4).

Rules
1. A record whose header is missing, damaged or of another partition's origin is `Broken`, with a reason for a person.
   It is never taken for a message, and never dropped: its raw bytes go to the dead letters.
2. Numbers that outgrow their place stay at the largest that fits; texts are cut at whole characters.
3. A header of ours replaces an older one of the same name, so that a message moved a hundred times carries one.
4. Of every version the first byte is the version and the last four are the checksum. A header of a newer version is
   refused (`FailedPrecondition`): the message in it must neither be dead-lettered nor be taken for another one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Header, StoredRecord

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
#: Milliseconds; due never: parked until it is released.
FOREVER = 2**62

_VERSION = 1
_FIXED = struct.Struct(">BBIQHBqqBH")
#: Of these origin, attempt, crashes and due.
_NUMBERS = struct.Struct(">QHBq")
_CHECKSUM = struct.Struct(">I")
#: Where the origin is, and the length of the topic's id.
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
    DROP = 8  #: no message: a command asks that such a parked message go to the dead letters
    UNBURIED = 9  #: attempts used up: to become a dead letter, not to be delivered
    CHECKPOINT = 10  #: no message: a record of a checkpoint (`checkpoint`)
    DELAYED = 11  #: nacked, to wait for as long as the callback said


_CHECKPOINT = bytes([Why.CHECKPOINT])
_REASONS = {why.value: why for why in Why}
#: What isn't a message but a request.
REQUESTS = frozenset({Why.RELEASE, Why.DROP})
#: What isn't a message.
NO_MESSAGES = REQUESTS | {Why.CHECKPOINT}


class RetryInfo(NamedTuple):
    """What `ps-retry` says. Times are milliseconds of the wall clock."""

    topic_id: str
    partition: int
    #: The offset at which it was published.
    origin: int
    #: Which delivery the next one will be.
    attempt: int = 1
    #: How often it was the only suspect when its process died.
    crashes: int = 0
    #: Not to be delivered before.
    due: int = 0
    why: Why = Why.NACKED
    #: When it failed first, and what was said; 0 and "": it never did.
    failed: int = 0
    error: str = ""


#: Of a message that waits: origin, attempt, crashes, due (milliseconds of the wall clock) and why (`Why`).
Waits = tuple[int, int, int, int, int]


class Broken(NamedTuple):
    """Not a record that we can read; why not, for a person."""

    reason: str


class Death(NamedTuple):
    """What a dead letter says of its end."""

    topic: str
    subscription: str
    reason: str
    error_class: str = ""
    error: str = ""
    #: Milliseconds of the wall clock.
    time: int = 0


class RetryRecord:
    """The message that was published, as it comes back from the retry topic: `offset` is its origin."""

    __slots__ = ("_topic", "info", "stored")

    def __init__(self, stored: StoredRecord, info: RetryInfo, topic: str) -> None:
        #: The record as it lies in the retry topic.
        self.stored = stored
        self.info = info
        self._topic = topic

    @property
    def retry_offset(self) -> int:
        """Where it lies in the retry partition."""
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
    """The text in UTF-8, cut to `size` bytes at a whole character."""
    raw = text.encode("utf-8", "replace")
    return raw if len(raw) <= size else raw[:size].decode("utf-8", "ignore").encode()


def encode(info: RetryInfo) -> bytes:
    """The value of `ps-retry`."""
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
    """What a `ps-retry` header says; raises if it is of a newer version (rule 4)."""
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


def read(record: StoredRecord, topic: str, topic_id: str, partition: int) -> RetryRecord | Broken:
    """The message in a record of the retry topic of partition `partition` of `topic`."""
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
    """Whether a record with these headers is one of a checkpoint."""
    name, value = headers[0] if headers else ("", None)
    if name != RETRY_HEADER or value is None or value[1:2] != _CHECKPOINT:
        return False
    return isinstance(decode(value), RetryInfo)


class Scan:
    """Reads the headers of records that only wait: that they are this partition's is checked, texts are left alone."""

    def __init__(self, topic_id: str, partition: int) -> None:
        self._raw_id = cut(topic_id, 255)
        #: Why it waits, by the first bytes of the header.
        self._reasons = {
            encode(RetryInfo(topic_id, partition, 0, why=why))[: _ORIGIN.start]: why.value
            for why in Why
            if why not in NO_MESSAGES
        }
        like = encode(RetryInfo(topic_id, partition, 0, why=Why.BACKLOG))
        # Of what most of them say all is the same but the origin and the checksum.
        self._size, self._before, self._after = len(like), like[: _ORIGIN.start], like[_ORIGIN.stop : -4]
        self._before_checked = crc32(self._before)
        self._parts = struct.Struct(f">{len(self._before)}sQ{len(self._after)}sI")

    def follower(self, headers: Sequence[Header] | None) -> int:
        """The origin of a message that only waits behind others and was never delivered; -1: look closer."""
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
        """What the last header says, if it is ours and the only one; None: look closer."""
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
    """The headers of the moved record; `value`: of `ps-retry`, if it is encoded already."""
    ours = (RETRY_HEADER, value or encode(info))
    return [*(header for header in headers if header[0] != RETRY_HEADER), ours] if headers else [ours]


def dead_headers(headers: Sequence[Header] | None, info: RetryInfo | Broken, death: Death) -> list[Header]:
    """The headers of the dead letter, readable for any client: texts only.

    Of a broken record everything is kept, what it said of itself included.
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
        said += [
            ("topic-id", info.topic_id),
            ("partition", str(info.partition)),
            ("offset", str(info.origin)),
            ("attempts", str(info.attempt + info.crashes)),
            ("crashes", str(info.crashes)),
            ("failed-since", str(info.failed)),
        ]
    return [*kept, *((DEAD_PREFIX + name, cut(text, ERROR_BYTES)) for name, text in said)]
