"""Values that every room knows: records, positions, ack ids and the message that a callback receives.

Rules
1. Nothing here does I/O, and importing it loads neither librdkafka nor pydantic.
2. A record keeps the shape that librdkafka's Python client gives it (methods, not attributes), so that the hot
   path hands records through untouched; every other log (memory) takes the same shape.
3. A message reads its record lazily: a header is decoded when it is asked for.
4. Nothing of a record is lost on the way: text that isn't UTF-8 is decoded with `surrogateescape` and encodes
   back to the same bytes; `Message.key` and `Message.headers` give the raw bytes, repeats included.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from kafka_pubsub.errors import FailedPrecondition, PubSubError, UnknownAck

__all__ = [
    "RESERVED_HEADER_PREFIX",
    "UNREAD",
    "AckId",
    "Answered",
    "CommitAnswers",
    "Committed",
    "Ending",
    "Fetched",
    "Further",
    "Header",
    "LogEnd",
    "Membership",
    "Message",
    "MessageSink",
    "NewRecord",
    "Outcome",
    "Position",
    "Positions",
    "PositionsLater",
    "ReadFrom",
    "StoredRecord",
    "TopicInfo",
    "TopicPartition",
    "decode_ordering_key",
]

#: Header names that begin so are ours; a user's attribute may not.
RESERVED_HEADER_PREFIX = "ps-"

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """A partition of a Kafka topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


class Committed(NamedTuple):
    """A group's stored position in a partition; `offset` is None when the log has none.

    `epoch`: the leader epoch of what was read before it, if that is known.
    """

    offset: int | None
    metadata: str
    epoch: int | None = None


class LogEnd(NamedTuple):
    """Up to where a log was read. `epoch`: the leader epoch of the last record before it, if that is known."""

    offset: int
    epoch: int | None = None

    def epoch_at(self, position: int) -> int | None:
        """An epoch that goes with a lower position; None where there is none, or a later leader's marker may be."""
        return self.epoch if position <= self.offset else None


#: Nothing was read, or it isn't known.
UNREAD = LogEnd(0)

#: Where to read from: an offset, with the epoch of what was read before it if that is known.
ReadFrom = int | LogEnd


class Further(NamedTuple):
    """What a transaction takes besides the records that are stored already: more records, and what it commits."""

    records: Sequence[NewRecord]
    positions: Positions | PositionsLater


Positions = Mapping[TopicPartition, Committed]
#: Tells what a transaction commits, given the offsets of its records once they are stored; None: it is aborted.
PositionsLater = Callable[[Sequence[int]], Positions | Further | None]

#: What became of a commit, by partition: an error, or None for what is stored.
CommitAnswers = Mapping[TopicPartition, PubSubError | None]
Answered = Callable[[CommitAnswers], None]


class TopicInfo(NamedTuple):
    """A log's topic as it is now. `topic_id` changes when a topic is deleted and made again."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    max_message_bytes: int
    config: Mapping[str, str]


@runtime_checkable
class StoredRecord(Protocol):
    """A record of a log, in the shape of `confluent_kafka.Message`. `len()` is the length of its value."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[Header] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...
    def __len__(self) -> int: ...


class NewRecord(NamedTuple):
    """A record to be written. `timestamp` in milliseconds since the epoch; 0 or less: the time of writing."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp: int = 0


class Membership(NamedTuple):
    """A place in a consumer group as of one assignment; the log refuses it once the group has moved on.

    `token` is the log's own and means nothing elsewhere.
    """

    group: str
    token: object


class Ending(Enum):
    """What became of a transaction."""

    #: All of it is durable.
    STORED = "stored"
    #: Surely nothing of it is, nor ever will be.
    ABORTED = "aborted"
    #: Not known yet; all of it or nothing.
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """A transaction's ending; `offsets` of its records, in their order, if it was stored; else the `reason`.

    `refused`: the records, by their number, that the log won't take, whatever else is in the transaction.
    """

    ending: Ending
    offsets: Sequence[int] = ()
    reason: PubSubError | None = None
    refused: Mapping[int, PubSubError] = {}


class Fetched(NamedTuple):
    """Records by rising offset, and the offsets at which there is none (deleted, compacted, aborted)."""

    records: Sequence[StoredRecord]
    missing: Sequence[int]


def decode_ordering_key(key: bytes | None) -> str | None:
    """The ordering key of a record's key; bytes that aren't UTF-8 survive as surrogates."""
    return None if key is None else key.decode("utf-8", "surrogateescape")


_ACK_ID = struct.Struct(">BQIqII")
_ACK_ID_VERSION = 1


class AckId(NamedTuple):
    """Names one delivery: which record, under which assignment (epoch), which attempt.

    `process` is a random number of the process that handed it out; another process's id is `UnknownAck`.
    """

    process: int
    partition: int
    offset: int
    epoch: int
    attempt: int

    def __str__(self) -> str:
        body = _ACK_ID.pack(_ACK_ID_VERSION, *self)
        return base64.urlsafe_b64encode(body + struct.pack(">I", zlib.crc32(body))).decode()

    @classmethod
    def parse(cls, text: str) -> AckId:
        """The ack id that `str()` wrote; anything else is `UnknownAck`."""
        try:
            raw = base64.urlsafe_b64decode(text.encode("ascii"))
            body, (checksum,) = raw[:-4], struct.unpack(">I", raw[-4:])
            version, *fields = _ACK_ID.unpack(body)
        except (ValueError, AttributeError, struct.error):
            raise UnknownAck(
                f"not an ack id of kafka_pubsub: {text!r:.80}; pass message.ack_id as it is"
            ) from None
        if checksum != zlib.crc32(body) or version != _ACK_ID_VERSION:
            raise UnknownAck("the ack id is damaged or of another version; pass message.ack_id as it is")
        return cls(*fields)


class AckFuture(Future[None]):
    """Resolves when an ack is durable, or fails with an `AckError`. Threads wait for it, coroutines await it."""

    def cancel(self) -> bool:
        """False: an ack can't be taken back."""
        return False

    def __await__(self) -> Generator[object, None, None]:
        """Waits in a coroutine, as `result` does in a thread."""
        raise NotImplementedError


class MessageSink(Protocol):
    """What stands behind a message's verbs: the lease that it was handed out under."""

    def ack(self, message: Message) -> None: ...
    def nack(self, message: Message, delay: float | None) -> None: ...
    def extend(self, message: Message, seconds: float) -> None: ...
    def ack_with_response(self, message: Message) -> AckFuture: ...
    def ack_id(self, message: Message) -> str: ...


class Message:
    """A message as a callback receives it.

    Example:
        def handle(message):
            print(message.ordering_key, message.data)
            message.ack()
    """

    __slots__ = ("_attempt", "_record", "_sink", "_state")

    def __init__(self, record: StoredRecord, sink: MessageSink, attempt: int = 1) -> None:
        self._record = record
        self._sink = sink
        self._attempt = attempt
        # 0 while it is with its lease runner; the sink's own codes afterwards (client/workers/lease_runner.py)
        self._state = 0

    @property
    def data(self) -> bytes:
        """The body, untouched; empty for a record without a value (`tombstone` tells them apart)."""
        return self._record.value() or b""

    @property
    def tombstone(self) -> bool:
        """True for a record that has no value at all, as in compacted topics."""
        return self._record.value() is None

    @property
    def key(self) -> bytes | None:
        """The record's key as bytes."""
        return self._record.key()

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None when there is none. Bytes that aren't UTF-8 become lone surrogates."""
        return decode_ordering_key(self._record.key())

    @property
    def headers(self) -> list[Header]:
        """All headers in their order, repeats and binary values included, ours too."""
        return list(self._record.headers() or ())

    @property
    def attributes(self) -> Mapping[str, str]:
        """The headers as text, without ours; of a repeated name the last value. `headers` has all bytes."""
        return {
            name: "" if value is None else value.decode("utf-8", "surrogateescape")
            for name, value in self._record.headers() or ()
            if not name.startswith(RESERVED_HEADER_PREFIX)
        }

    @property
    def message_id(self) -> str:
        """The id that `publish` returned: the `ps-id` header if the message was relayed, else its position."""
        for name, value in self._record.headers() or ():
            if name == "ps-id" and value is not None:
                return value.decode("utf-8", "replace")
        return f"{self._record.topic()}:{self._record.partition()}:{self._record.offset()}"

    @property
    def publish_time(self) -> datetime:
        """When it was published, by the record's timestamp (the epoch's start if it has none)."""
        return datetime.fromtimestamp(max(self._record.timestamp()[1], 0) / 1000, UTC)

    @property
    def delivery_attempt(self) -> int:
        """Begins at 1; a nack, a deadline that passes and a death of the process add 1, a clean close adds nothing."""
        return self._attempt

    @property
    def priority(self) -> int:
        """The priority lane, 0 to 9 (4 where the topic has no lanes)."""
        return 4

    @property
    def durable(self) -> bool:
        """Whether the message came through the durable lane."""
        return True

    @property
    def topic(self) -> str:
        """The topic that it was read from."""
        return self._record.topic() or ""

    @property
    def partition(self) -> int:
        """The partition that it was read from."""
        partition = self._record.partition()
        return -1 if partition is None else partition

    @property
    def offset(self) -> int:
        """Its offset in the partition."""
        offset = self._record.offset()
        return -1 if offset is None else offset

    @property
    def ack_id(self) -> str:
        """Names this delivery, for `subscription.acknowledge`."""
        return self._sink.ack_id(self)

    def ack(self) -> None:
        """Finishes the message: it isn't delivered again. A second or a late ack changes nothing; `stats` counts it."""
        self._sink.ack(self)

    def nack(self, delay: float | None = None) -> None:
        """Has the message delivered again, after `delay` seconds (0 to 604,800); by default after the backoff."""
        self._sink.nack(self, delay)

    def extend(self, seconds: float) -> None:
        """Moves the deadline to `seconds` from now; 0 is a nack."""
        self._sink.extend(self, seconds)

    def ack_with_response(self) -> AckFuture:
        """Acks; the future resolves when the ack is durable. After that the message is never delivered again.

        It fails with `StaleAck` if the ack counts for nothing, and with another `AckError` if that isn't known.
        """
        return self._sink.ack_with_response(self)

    def json(self) -> object:
        """The body decoded as JSON."""
        try:
            return json.loads(self.data)
        except ValueError as error:
            raise FailedPrecondition(f"message {self.message_id} isn't JSON: {error}") from error

    def record(self) -> object:
        """The body decoded by the topic's schema."""
        raise FailedPrecondition("schemas are not supported yet: use message.data or message.json()")

    def __repr__(self) -> str:
        key = "" if self.ordering_key is None else f" key={self.ordering_key!r}"
        return f"<Message {self.message_id}{key} attempt={self.delivery_attempt} {len(self._record)} bytes>"
