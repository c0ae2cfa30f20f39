"""The records of one client: values are published by their topic's schema, messages are read by the one they name.

Rules
1. A topic's schema is declared by a class, by a file, or by its subject's last one. Only a declaration registers.
2. A writer asks for a schema once for each class of values, when it begins; from then on nothing is asked. So an
   outage of the registry stops no writer that has begun.
3. A value whose class brings its schema (`avro_schema()`, a Protobuf message) is published by that one if the subject
   has it, else by the subject's last schema.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

from kafka_pubsub.config import TopicSchema
from kafka_pubsub.errors import (
    BadRecord,
    Call,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    SchemaError,
)
from kafka_pubsub.model import Header, Message, RecordReader, no_schemas
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.records.codec import FORMATS, Codec, Format
from kafka_pubsub.records.folder import ENDINGS
from kafka_pubsub.records.frames import (
    FRAME,
    RECORD_HEADER,
    SCHEMA_HEADERS,
    SchemaId,
    frame,
    is_framed,
    split,
)
from kafka_pubsub.records.message_index import join_index, split_index
from kafka_pubsub.records.models import format_of, schema_of
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.source import Registered, SchemaSource

__all__ = ["Declared", "RecordWriter", "Records"]


#: The decoders that are kept.
MOST_DECODERS = 1000


class Declared(NamedTuple):
    """A topic's declared schema: as the catalog stores it, and as the registry or folder names it.

    `kind`: the class that brought it; None: none did.
    """

    schema: TopicSchema
    kind: type | None
    registered: Registered


class Records(RecordReader):
    """Reads records, and makes the writers of topics. `source`: where schemas lie; None: it wasn't said."""

    def __init__(self, source: SchemaSource | None) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._writers: dict[str, RecordWriter] = {}
        # By class and frame: the shortest way for bodies whose schema is known, one for each schema and class in use.
        self._decoders: dict[tuple[type | None, bytes], Callable[[bytes], object]] = {}

    @property
    def source(self) -> SchemaSource:
        """Where schemas lie; raises `FailedPrecondition` if it wasn't said."""
        if self._source is None:
            raise no_schemas()
        return self._source

    # -- reading ---------------------------------------------------------------------------------------------

    def asks(self, message: Message) -> bool:
        """Returns whether reading the message would ask for its schema."""
        if self._source is None:
            return False
        try:
            schema, _, _ = split(message.headers, message.data)
        except BadRecord:
            return False
        return not self._source.knows(schema)

    def read(
        self,
        message: Message,
        kind: type | None = None,
        otherwise: Callable[[bytes], object] | None = None,
    ) -> object:
        """See `RecordReader`; raises `BadRecord` if the record can't be read."""
        record = message._record
        headers, body = record.headers() or (), record.value() or b""
        if otherwise is not None and (self._source is None or not is_framed(headers, body)):
            return otherwise(body)
        in_body = not headers or SCHEMA_HEADERS.isdisjoint(name for name, _ in headers)
        decode = self._decoders.get((kind, body[:FRAME])) if in_body else None
        if decode is None:
            return self.decode(headers, body, kind)
        try:
            return decode(body)
        except SchemaError as error:
            raise _bad_record(split((), body)[0], error) from error

    def decode(self, headers: Iterable[Header], body: bytes, kind: type | None = None) -> object:
        """Returns the record of a body with these headers."""
        body = bytes(body)
        schema, bare, framed = split(headers, body)
        # What a header said is no word about the next body that begins alike.
        in_body = len(bare) == len(body) - FRAME
        try:
            codec = self.source.find(schema)
        except NotFound as error:
            raise BadRecord(error.message) from error
        try:
            own = schema_of(kind, codec.format)
            if codec.format == "protobuf":
                codec, bare = _message_of(codec, bare, own, framed=framed)
            found = codec.decode(bare, kind, own)
        except SchemaError as error:
            raise _bad_record(schema, error) from error
        if in_body and codec.format != "protobuf" and len(self._decoders) < MOST_DECODERS:
            self._decoders[kind, body[:FRAME]] = codec.decoder(kind, own, FRAME)
        return found

    # -- publishing ------------------------------------------------------------------------------------------

    def declare(
        self,
        topic: str,
        given: object,
        *,
        format_: Format | None = None,
        register: bool = True,
        before: Callable[[TopicSchema], object] = lambda schema: None,
    ) -> Declared:
        """Returns a topic's schema as it is declared; a text that it brings is registered (rule 1).

        `given`: a class, a file's name, "avro", "json" or "protobuf", a subject, or a `TopicSchema`. `format_`: the
        format of a class that could have several (None: the one that fits it). `register=False` (default True) only
        looks the schema up. `before` is called with the schema before anything is registered, and may refuse it.
        """
        source = self.source
        kind, wanted, text = _read(given, format_)
        wanted = self._complete(topic, wanted)
        if wanted.format is not None:
            before(wanted)
        codec = None
        if text is not None:
            codec = parse_schema(_format(wanted), text)
        elif kind is not None:
            codec = schema_of(kind, _format(wanted), own=False)
        if codec is None:
            kind, found = None, self._latest(wanted, kind)
        elif register:
            found = source.register(wanted.subject, codec)
        else:
            found = source.look_up(wanted.subject, codec)
        if wanted.format is None:
            wanted = wanted.model_copy(update={"format": found.codec.format})
        return Declared(_checked(wanted, found), kind, found)

    def _latest(self, wanted: TopicSchema, kind: type | None) -> Registered:
        try:
            return self.source.latest(wanted.subject)
        except NotFound as error:
            brings = "" if kind is None else f". {kind.__name__} brings no {wanted.format} schema"
            # A folder's text says where to write the schema.
            fix = (
                ". Declare the schema with a class that brings one, or with a file"
                if self.source.numbers_alone
                else ""
            )
            raise NotFound(f"{error.message}{brings}{fix}") from error

    def _complete(self, topic: str, wanted: TopicSchema) -> TopicSchema:
        """Fills in the subject and the framing."""
        source = self.source
        if wanted.framing == "confluent" and not source.numbers_alone:
            raise InvalidArgument(
                f"schema: framing 'confluent' has room for a registry's number, and the schemas lie in the {source}: "
                "use framing 'header'"
            )
        return wanted.model_copy(
            update={
                "subject": wanted.subject or source.subject_of(topic),
                "framing": wanted.framing or ("confluent" if source.numbers_alone else "header"),
            }
        )

    def writer(self, topic: str, look_up: Callable[[], TopicSchema | None]) -> RecordWriter:
        """Returns a topic's writer; `look_up` reads its schema from the catalog, for the first one."""
        known = self._writers.get(topic)
        if known is not None:
            return known
        schema = look_up()
        if schema is None:
            give = Call("update_topic", topic, (("schema", ...),))
            raise FailedPrecondition(f"topic {topic!r} has no schema: {give} gives it one", calls=(give,))
        # Another thread may have declared a newer schema since.
        return self._writers.setdefault(topic, RecordWriter(topic, schema, self.source))

    def ready_writer(self, topic: str, value: object) -> RecordWriter | None:
        """Returns the topic's writer if it encodes a value without asking for anything; else None."""
        writer = self._writers.get(topic)
        return writer if writer is not None and writer.is_ready(value) else None

    def use(self, topic: str, declared: Declared) -> RecordWriter:
        """Returns a topic's writer, which publishes values by the schema that was declared."""
        with self._lock:
            writer = self._writers.get(topic)
            if writer is None or writer.schema != declared.schema:
                writer = RecordWriter(topic, declared.schema, self.source)
            writer.add(declared.kind, declared.registered)
            self._writers[topic] = writer
        return writer

    def forget(self, topic: str) -> None:
        """Forgets a topic's writer: the topic was changed."""
        self._writers.pop(topic, None)

    def close(self) -> None:
        """Closes the connection to a registry."""
        if self._source is not None:
            self._source.close()


class _Bound(NamedTuple):
    """The codec of the values of one class, and the frame before their bodies or the header beside them."""

    codec: Codec
    prefix: bytes
    headers: Mapping[str, str]


class RecordWriter:
    """Encodes the values of one topic."""

    def __init__(self, topic: str, schema: TopicSchema, source: SchemaSource) -> None:
        self.topic, self.schema = topic, schema
        self._source = source
        self._lock = threading.Lock()
        self._bound: dict[type, _Bound] = {}
        # For values whose class brings no schema, and the classes of those that were published.
        self._default: _Bound | None = None
        self._followers: set[type] = set()

    def add(self, kind: type | None, registered: Registered) -> None:
        """Publishes values of a class by a schema, and those of classes that bring none."""
        bound = self._bind(registered)
        with self._lock:
            self._default = bound
            # They had the former last schema, and find the new one.
            for each in self._followers:
                self._bound.pop(each, None)
            self._followers.clear()
            if kind is not None:
                self._bound[kind] = bound

    def is_ready(self, value: object) -> bool:
        """Returns whether encoding a value needs no question."""
        return type(value) in self._bound

    def encode(self, value: object) -> tuple[bytes, Mapping[str, str]]:
        """Returns a value's body and its header; raises `SchemaError`, which names the field that doesn't fit."""
        bound = self._bound.get(type(value)) or self._find(type(value))
        try:
            body = bound.codec.encode(value)
        except SchemaError as error:
            raise SchemaError(
                f"topic {self.topic!r}, schema {self.schema.subject!r}: {error.message}"
            ) from error
        return bound.prefix + body, bound.headers

    def encode_into(self, value: object, options: PublishOptions) -> bytes:
        """Returns a value's body; puts its header among the attributes, in place of one that was copied there."""
        body, header = self.encode(value)
        given = options.get("attributes") or {}
        if header or not SCHEMA_HEADERS.isdisjoint(given):
            kept = {name: text for name, text in given.items() if name not in SCHEMA_HEADERS}
            options["attributes"] = {**kept, **header}
        return body

    def read_json(self, text: bytes) -> object:
        """Returns the value that a text in JSON means by the topic's last schema, for `encode`."""
        with self._lock:
            codec = self._last().codec
        return codec.read_json(text)

    def _find(self, kind: type) -> _Bound:
        with self._lock:
            bound = self._bound.get(kind)
            if bound is None:
                bound = self._own(kind)
            if bound is None:
                bound = self._last()
                self._followers.add(kind)
            self._bound[kind] = bound
            return bound

    def _own(self, kind: type) -> _Bound | None:
        codec = schema_of(kind, _format(self.schema))
        if codec is None:
            return None
        try:
            return self._bind(self._source.look_up(self.schema.subject, codec))
        except NotFound:
            return None

    def _last(self) -> _Bound:
        if self._default is None:
            found = self._source.latest(self.schema.subject)
            _checked(self.schema, found)
            self._default = self._bind(found)
        return self._default

    def _bind(self, found: Registered) -> _Bound:
        path = _path_of(found.codec)
        if self.schema.framing == "confluent":
            return _Bound(
                found.codec, frame(found.id.number) + (b"" if path is None else join_index(path)), {}
            )
        if path not in (None, [0]):
            raise SchemaError(
                f"topic {self.topic!r}: with framing 'header' a Protobuf schema's first message is published: move the "
                "message to the front of its file, or use framing 'confluent'"
            )
        return _Bound(found.codec, b"", {RECORD_HEADER: str(found.id)})


def _bad_record(schema: SchemaId, error: SchemaError) -> BadRecord:
    # A process that is short of memory says nothing about the record.
    if isinstance(error.__cause__, MemoryError):
        raise error.__cause__ from None
    return BadRecord(f"schema {schema}: {error.message}")


def _path_of(codec: Codec) -> list[int] | None:
    """Returns the place of a codec's message in its file; None: its format has no files of several messages."""
    return getattr(codec, "path", None)


def _message_of(codec: Codec, body: bytes, own: Codec | None, *, framed: bool) -> tuple[Codec, bytes]:
    """Returns the codec of the message that a Protobuf body holds, and the body without the frame's word about it."""
    path = ([0] if own is None else _path_of(own)) or [0]
    if framed:
        try:
            path, body = split_index(body)
        except ValueError as error:
            raise SchemaError(str(error)) from error
    from kafka_pubsub.records.protobuf import ProtobufCodec

    assert isinstance(codec, ProtobufCodec)
    return codec.at(path), body


def _format(schema: TopicSchema) -> Format:
    if schema.format is None:
        raise InvalidArgument("schema: it isn't said whether it is avro, json or protobuf")
    return schema.format


def _checked(schema: TopicSchema, found: Registered) -> TopicSchema:
    if found.codec.format != schema.format:
        raise SchemaError(
            f"schema: the records are declared as {schema.format}, and subject {schema.subject!r} has "
            f"{found.codec.format}: name another subject"
        )
    return schema


def _read(given: object, format_: Format | None) -> tuple[type | None, TopicSchema, str | None]:
    """Returns the class, the settings and the text that a declaration has."""
    if isinstance(given, type):
        return given, TopicSchema(format=format_ or format_of(given)), None
    if isinstance(given, PathLike):
        given = TopicSchema(file=fspath(given))
    if isinstance(given, str):
        wanted, text = _read_text(given)
        return None, wanted, text
    if not isinstance(given, TopicSchema):
        raise InvalidArgument(
            f"schema must be a class, a file, a subject or a TopicSchema, not {type(given).__name__}"
        )
    if given.kind is not None:
        if given.file is not None:
            raise InvalidArgument("schema: give a kind or a file, not both")
        wanted = given.model_copy(
            update={"format": given.format or format_ or format_of(given.kind), "kind": None}
        )
        return given.kind, wanted, None
    if given.file is None:
        return None, given, None
    file, text = _read_text(given.file)
    if text is None:
        raise InvalidArgument(
            f"schema: file {given.file!r} ends neither in .avsc, .json nor .proto, so its format isn't known"
        )
    if given.format not in (None, file.format):
        raise InvalidArgument(f"schema: file {given.file!r} isn't {given.format}: leave format out")
    return None, given.model_copy(update={"format": file.format, "file": None}), text


def _read_text(given: str) -> tuple[TopicSchema, str | None]:
    """Returns the meaning of a text: a format, a file with its text, or a subject."""
    for each in FORMATS:
        if given == each:
            return TopicSchema(format=each), None
    path = Path(given)
    format_ = ENDINGS.get(path.suffix)
    if format_ is None:
        return TopicSchema(subject=given), None
    try:
        return TopicSchema(format=format_), path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"schema: {given} can't be read: {error}") from error
