"""Values that all parts of the package share: records, positions, ack ids and the message that a callback receives.

Rules
1. This module does no I/O, and importing it loads neither librdkafka nor pydantic.
2. A record keeps the shape that librdkafka's Python client gives it (methods, not attributes), so that the hot
   path passes records on unchanged; the in-memory Kafka uses the same shape.
3. A message reads its record lazily: a header is decoded at its first use.
4. A message loses nothing of its record: text that isn't UTF-8 is decoded with `surrogateescape` and encodes
   back to the same bytes; `Message.key` and `Message.headers` give the raw bytes, repeated headers included.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar, overload, runtime_checkable

from kafka_pubsub.errors import BadRecord, FailedPrecondition, PubSubError, UnknownAck

__all__ = [
    "ID_HEADER",
    "NO_RECORDS",
    "PUBLISHED_HEADER",
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
    "RecordReader",
    "Run",
    "StoredRecord",
    "TopicInfo",
    "TopicPartition",
    "decode_ordering_key",
    "message_id_of",
    "no_schemas",
    "published_at",
]

T = TypeVar("T")

#: The prefix of our own header names; a user's attribute may not have it.
RESERVED_HEADER_PREFIX = "ps-"

#: The header with the id of a message that doesn't lie where it was published.
ID_HEADER = RESERVED_HEADER_PREFIX + "id"
#: When a message was published, in milliseconds since 1970, if the record has another time.
PUBLISHED_HEADER = RESERVED_HEADER_PREFIX + "published"

_MILLISECONDS = re.compile(rb"\d{1,14}")

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """A partition of a Kafka topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """The place of a record in a log."""

    topic: str
    partition: int
    offset: int


class Committed(NamedTuple):
    """A group's stored position in a partition; `offset` is None when the log has none.

    `epoch`: the leader epoch of the last record read before it, if that is known.
    """

    offset: int | None
    metadata: str
    epoch: int | None = None


#: A run of offsets: the first one, and the one after the last.
Run = tuple[int, int]


class LogEnd(NamedTuple):
    """The offset up to which a log was read, with the leader epoch of the last record before it if that is known."""

    offset: int
    epoch: int | None = None

    def epoch_at(self, position: int) -> int | None:
        """Returns the epoch for a position up to `offset`; None above, where a later leader may have written."""
        return self.epoch if position <= self.offset else None


#: Nothing was read, or how much was read isn't known.
UNREAD = LogEnd(0)

#: Where to read from: an offset, with the epoch of the last record read before it if that is known.
ReadFrom = int | LogEnd


class Further(NamedTuple):
    """An addition to an open transaction: more records, and the positions that it commits."""

    records: Sequence[NewRecord]
    positions: Positions | PositionsLater


Positions = Mapping[TopicPartition, Committed]
#: Returns the positions that a transaction commits, given the offsets of its stored records; None aborts it.
PositionsLater = Callable[[Sequence[int]], Positions | Further | None]

#: The answer to a commit, by partition: an error, or None if the position is stored.
CommitAnswers = Mapping[TopicPartition, PubSubError | None]
Answered = Callable[[CommitAnswers], None]


class TopicInfo(NamedTuple):
    """The present state of a log's topic. `topic_id` changes when a topic is deleted and made again."""

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
    """A record to be written. `timestamp` is in milliseconds since 1970; 0 or less stands for the time of writing."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp: int = 0


class Membership(NamedTuple):
    """A membership in a consumer group as of one assignment; the log refuses it after the group's next rebalance.

    `token` is the adapter's own value; other code passes it on unread.
    """

    group: str
    token: object


class Ending(Enum):
    """The result of a transaction."""

    #: The whole transaction is durable.
    STORED = "stored"
    #: Nothing of the transaction is stored, or ever will be.
    ABORTED = "aborted"
    #: It isn't known yet whether the transaction is stored or aborted.
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """A transaction's ending, with the `offsets` of its records in their order if it was stored, else the `reason`.

    If the ending isn't known, the offsets say where the records lie if it was stored.

    `refused`: the records, by index, that the log refuses whatever else is in the transaction. `silent`: those that
    got no answer in time, if that was the reason and is known.
    """

    ending: Ending
    offsets: Sequence[int] = ()
    reason: PubSubError | None = None
    refused: Mapping[int, PubSubError] = {}
    silent: Collection[int] = ()


class Fetched(NamedTuple):
    """Records by rising offset, and the offsets that hold no record (deleted, compacted, aborted)."""

    records: Sequence[StoredRecord]
    missing: Sequence[int]


def decode_ordering_key(key: bytes | None) -> str | None:
    """Returns a record's key as text; bytes that aren't UTF-8 become lone surrogates."""
    return None if key is None else key.decode("utf-8", "surrogateescape")


def message_id_of(record: StoredRecord) -> str:
    """Returns the id that `publish` returned: the header `ps-id` if there is one, else topic, partition and offset."""
    for name, value in record.headers() or ():
        if name == ID_HEADER and value is not None:
            return value.decode("utf-8", "replace")
    return f"{record.topic()}:{record.partition()}:{record.offset()}"


def published_at(record: StoredRecord) -> int:
    """Returns when a message was published, in milliseconds since 1970; `ps-published` goes before the timestamp."""
    for name, value in record.headers() or ():
        if name == PUBLISHED_HEADER and value is not None and _MILLISECONDS.fullmatch(value):
            return int(value)
    return record.timestamp()[1]


_ACK_ID = struct.Struct(">BQBIqII")
_ACK_ID_VERSION = 2


class AckId(NamedTuple):
    """The identity of one delivery: its record, the assignment (`epoch`) and the attempt.

    `process` is a random number of the process that handed the id out; in another process the id is `UnknownAck`.
    """

    process: int
    #: As in `PartitionId`.
    lane: int
    partition: int
    offset: int
    epoch: int
    attempt: int

    def __str__(self) -> str:
        body = _ACK_ID.pack(_ACK_ID_VERSION, *self)
        return base64.urlsafe_b64encode(body + struct.pack(">I", zlib.crc32(body))).decode()

    @classmethod
    def parse(cls, text: str) -> AckId:
        """Parses an ack id that `str()` wrote; raises `UnknownAck` for any other text."""
        try:
            raw = base64.b64decode(text.encode("ascii"), b"-_", validate=True)
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
    """A future of an ack: it resolves when the ack is durable, or fails with an `AckError`.

    Threads call `result`, coroutines await the future.
    """

    def cancel(self) -> bool:
        """Returns False: an ack can't be cancelled."""
        return False

    def __await__(self) -> Generator[object, None, None]:
        """Waits in a coroutine for what `result` waits for in a thread."""
        raise NotImplementedError


class MessageSink(Protocol):
    """The lease under which a message was handed out; the message's methods call it."""

    def ack(self, message: Message) -> None: ...
    def nack(self, message: Message, delay: float | None) -> None: ...
    def dead_letter(self, message: Message, reason: str) -> None: ...
    def extend(self, message: Message, seconds: float) -> None: ...
    def ack_with_response(self, message: Message) -> AckFuture: ...
    def ack_id(self, message: Message) -> str: ...
    def lane(self) -> tuple[int, bool]: ...
    def records(self) -> RecordReader: ...


class RecordReader(Protocol):
    """Reads messages by the schemas that they name."""

    def asks(self, message: Message) -> bool:
        """Returns whether reading the message would ask a registry, and so take a while."""
        ...

    def read(
        self,
        message: Message,
        kind: type | None = None,
        otherwise: Callable[[bytes], object] | None = None,
    ) -> object:
        """Returns the message's record, as that type (None: as plain values).

        A message has no record if it names no schema, or the client isn't told where schemas lie: `otherwise` makes
        the value of its body then (None: that is an error).
        """
        ...


class _NoRecords(RecordReader):
    """Stands where no schemas are known."""

    def asks(self, message: Message) -> bool:
        return False

    def read(
        self,
        message: Message,
        kind: type | None = None,
        otherwise: Callable[[bytes], object] | None = None,
    ) -> object:
        if otherwise is None:
            raise no_schemas()
        return otherwise(message._record.value() or b"")


def no_schemas() -> FailedPrecondition:
    """Makes the error of a client that isn't told where schemas lie."""
    return FailedPrecondition(
        "schemas: it isn't said where they lie: set KAFKA_PUBSUB_SCHEMAS, or schemas of PubSub, to a registry's "
        "address or a folder"
    )


#: Reads no record.
NO_RECORDS: RecordReader = _NoRecords()


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
        # 0 until the message is acked or nacked, then a code of its sink (subscribe/workers/lease_runner.py)
        self._state = 0

    @property
    def data(self) -> bytes:
        """The body as bytes; empty for a record without a value too (see `tombstone`)."""
        return self._record.value() or b""

    @property
    def tombstone(self) -> bool:
        """Whether the record has no value at all, as in compacted topics."""
        return self._record.value() is None

    @property
    def key(self) -> bytes | None:
        """The record's key as bytes."""
        return self._record.key()

    @property
    def ordering_key(self) -> str | None:
        """The key as text; None for a record without a key. Bytes that aren't UTF-8 become lone surrogates."""
        return decode_ordering_key(self._record.key())

    @property
    def headers(self) -> list[Header]:
        """All headers in their order, with repeated names, binary values and the `ps-` headers."""
        return list(self._record.headers() or ())

    @property
    def attributes(self) -> Mapping[str, str]:
        """The headers as text, without the `ps-` headers; of a repeated name the last value. See also `headers`."""
        return {
            name: "" if value is None else value.decode("utf-8", "surrogateescape")
            for name, value in self._record.headers() or ()
            if not name.startswith(RESERVED_HEADER_PREFIX)
        }

    @property
    def message_id(self) -> str:
        """The id that `publish` returned: the `ps-id` header if there is one, else topic, partition and offset."""
        return message_id_of(self._record)

    @property
    def handles(self) -> tuple[str, ...]:
        """The causal topics of the message's handles, less those that were deleted before it (`publish_multi`)."""
        text = self._header("ps-handles")
        return tuple(text.split(",")) if text else ()

    @property
    def event(self) -> str | None:
        """What the message reports: "topic_deleted", with the topic's name as `data`; None: it is a usual message."""
        return self._header("ps-event")

    def _header(self, wanted: str) -> str | None:
        for name, value in self._record.headers() or ():
            if name == wanted and value is not None:
                return value.decode("utf-8", "replace")
        return None

    @property
    def publish_time(self) -> datetime:
        """When it was published: the record's timestamp, or of a causal topic's message its publisher's time.

        1970-01-01 if the record has neither.
        """
        return datetime.fromtimestamp(max(published_at(self._record), 0) / 1000, UTC)

    @property
    def delivery_attempt(self) -> int:
        """The attempt, from 1. A nack, a passed deadline and a crash add 1; a clean close adds nothing."""
        return self._attempt

    @property
    def priority(self) -> int:
        """The priority, 0 to 9, of which the highest goes first; 0 where the topic has one priority."""
        return self._sink.lane()[0]

    @property
    def durable(self) -> bool:
        """Whether the message was published as durable; True where the topic has no lanes."""
        return self._sink.lane()[1]

    @property
    def topic(self) -> str:
        """The topic from which the message was read."""
        return self._record.topic() or ""

    @property
    def partition(self) -> int:
        """The partition from which the message was read."""
        partition = self._record.partition()
        return -1 if partition is None else partition

    @property
    def offset(self) -> int:
        """The message's offset in the partition."""
        offset = self._record.offset()
        return -1 if offset is None else offset

    @property
    def ack_id(self) -> str:
        """The id of this delivery, for `subscription.acknowledge`."""
        return self._sink.ack_id(self)

    def ack(self) -> None:
        """Finishes the message: it isn't delivered again. A second or a late ack changes nothing; `stats` counts it."""
        self._sink.ack(self)

    def nack(self, delay: float | None = None) -> None:
        """Asks for another delivery, after `delay` seconds (0 to 604,800); by default after the backoff."""
        self._sink.nack(self, delay)

    def dead_letter(self, reason: str) -> None:
        """Gives the message up: it becomes a dead letter at once, whose reason has this text.

        Where the subscription makes no dead letters (no `dead_letter`, or `on_exhausted="park"`), the message is parked
        until you release it.
        """
        self._sink.dead_letter(self, reason)

    def extend(self, seconds: float) -> None:
        """Moves the deadline to `seconds` from now; 0 is a nack."""
        self._sink.extend(self, seconds)

    def ack_with_response(self) -> AckFuture:
        """Acks the message, and returns a future that resolves when the ack is durable.

        After that the message is never delivered again. The future fails with `StaleAck` if the ack has no effect,
        and with another `AckError` if it isn't known whether it has one.
        """
        return self._sink.ack_with_response(self)

    @overload
    def json(self) -> object: ...
    @overload
    def json(self, kind: type[T]) -> T: ...
    def json(self, kind: type[T] | None = None) -> object:
        """Returns the body, decoded as JSON; with a `kind` (default None) as that type, checked by pydantic.

        `kind`: a model, dataclass, TypedDict, or any other type that pydantic knows: `message.json(Order)`.
        """
        try:
            return json.loads(self.data) if kind is None else _decode(self.data, kind)
        except ValueError as error:
            what = "JSON" if kind is None else f"a valid {getattr(kind, '__name__', kind)}"
            raise FailedPrecondition(f"message {self.message_id} isn't {what}: {error}") from error

    @overload
    def record(self) -> object: ...
    @overload
    def record(self, kind: type[T]) -> T: ...
    def record(self, kind: type[T] | None = None) -> object:
        """Returns the body, decoded by the schema that the message names (docs/records.md).

        `kind`: a model, dataclass, or Protobuf message as which it is returned, checked: `message.record(Order)`. None,
        the default, gives plain values. It raises `BadRecord` for a body that doesn't fit: a callback that lets it pass
        makes the message a dead letter at once. `RegistryUnavailable`: the schema isn't known yet and can't be asked
        for.
        """
        try:
            return self._sink.records().read(self, kind)
        except BadRecord as error:
            bad = BadRecord(f"message {self.message_id} isn't a record: {error.message}")
            bad.message_id = self.message_id
            raise bad from error

    def __repr__(self) -> str:
        key = "" if self.ordering_key is None else f" key={self.ordering_key!r}"
        return f"<Message {self.message_id}{key} attempt={self.delivery_attempt} {len(self._record)} bytes>"


def _decode(body: bytes, kind: type) -> object:
    from kafka_pubsub.payloads import decode_json  # pydantic, which Spark's executors don't have

    return decode_json(body, kind)
