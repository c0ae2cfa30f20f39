"""Bodies in Protobuf, without a frame.

Rules
1. A schema is the text of a `.proto` file, or a FileDescriptorProto in base64, as registries give both. A codec is for
   one message of the file, at first the first one; `at` gives the codec of another.
2. A plain value has every field: None where a field with presence isn't set, else its default. An enum is its name, or
   its number if that has no name. Timestamps, durations, wrappers and `Struct` are Python's values.
3. Protobuf keeps fields that a schema doesn't know, so a body isn't refused for them.
4. An empty message takes two bytes of a body and as much memory as all its fields, so values are counted before a large
   body is read. protobuf itself refuses messages that are nested more than 100 deep.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from kafka_pubsub.errors import FailedPrecondition, SchemaError
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.limits import MOST_BYTES, MOST_VALUES, refuse_large
from kafka_pubsub.records.message_index import Descriptor, is_map, is_repeated, read_varint
from kafka_pubsub.records.values import checker_of, fit_float, path_of, plain, problem_of

__all__ = ["ProtobufCodec", "text_of_message"]

_FILE = "schema.proto"
#: Seconds for the compiler.
_PATIENCE = 30
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= \n\r\t")
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

#: A message, of a class that is generated or made from a descriptor.
AnyMessage: TypeAlias = Any
MessageClass: TypeAlias = Any
Place: TypeAlias = tuple[str | int, ...]
Read: TypeAlias = Callable[[AnyMessage], object]


class ProtobufCodec:
    """A message of a Protobuf schema: bodies are the message's bytes."""

    format: Format = "protobuf"

    def __init__(self, text: str, references: Mapping[str, str], path: Sequence[int] = (0,)) -> None:
        self.text = text
        self._references = dict(references)
        self._file = _file_of(text, tuple(sorted(references.items())))
        self.path = list(path)
        # As many as the file has messages.
        self._others: dict[tuple[int, ...], ProtobufCodec] = {}
        self._message = _message_at(self._file, self.path)
        self._class = message_factory.GetMessageClass(self._message)
        self._harmless = min(MOST_BYTES, MOST_VALUES // _check_message(self._message))

    @property
    def file(self) -> Descriptor:
        """The descriptor of the file, with all its messages."""
        return self._file

    @property
    def message(self) -> str:
        """The message's full name (`shop.Order`)."""
        name: str = self._message.full_name
        return name

    def at(self, path: Sequence[int]) -> ProtobufCodec:
        """Returns the codec of another message of the file, by its path; raises `SchemaError` if there is none."""
        wanted = tuple(path)
        if list(wanted) == self.path:
            return self
        if wanted not in self._others:
            self._others[wanted] = ProtobufCodec(self.text, self._references, wanted)
        return self._others[wanted]

    def same_file(self, other: ProtobufCodec) -> bool:
        """Returns whether both schemas declare the same, apart from the file's name and comments."""
        return _declared(self._file) == _declared(other._file)

    def encode(self, value: object) -> bytes:
        """See `Codec`."""
        try:
            if isinstance(value, Message):
                self._check_name(type(value))
                message = value
            else:
                message = self._class()
                _fill(message, plain(value), ())
            body: bytes = message.SerializeToString()
        except SchemaError:
            raise
        except Exception as error:
            raise SchemaError(problem_of(error)) from error
        self._refuse(body)
        return body

    def read_json(self, text: bytes) -> object:
        """See `Codec`; names and values are those of Protobuf's own JSON."""
        if not text.lstrip().startswith(b"{"):  # the parser takes an empty list for a message
            raise SchemaError(f"not an object with the fields of {self.message}")
        try:
            return json_format.Parse(text, self._class())
        except Exception as error:
            raise SchemaError(problem_of(error)) from error

    def decoder(self, kind: type | None, reader: Codec | None, begin: int) -> Callable[[bytes], object]:
        """See `Codec`."""
        return lambda body: self.decode(body[begin:], kind, reader)

    def decode(self, body: bytes, kind: type | None = None, reader: Codec | None = None) -> object:
        """See `Codec`."""
        self._refuse(body)
        if isinstance(kind, type) and issubclass(kind, Message):
            self._check_name(kind)
            return self._parsed(kind, body)
        check = None if kind is None else checker_of(kind)
        message = self._parsed(self._class_of(reader), body)
        try:
            value = _plain_message(message)
            return value if check is None else check(value)
        except Exception as error:
            raise SchemaError(problem_of(error)) from error

    def _parsed(self, kind: MessageClass, body: bytes) -> AnyMessage:
        try:
            return kind.FromString(body)
        except Exception as error:
            raise SchemaError(
                f"not a body of {self.message} ({len(body)} bytes): {problem_of(error)}"
            ) from error

    def _class_of(self, reader: Codec | None) -> MessageClass:
        """Returns the class for a reader's version of the message."""
        if reader is None or reader is self:
            return self._class
        if not isinstance(reader, ProtobufCodec):
            raise SchemaError(f"a body in Protobuf can't be read as a schema of the format {reader.format}")
        try:
            pool = reader._file.pool
            message = pool.FindMessageTypeByName(self.message)
        except KeyError as error:
            raise SchemaError(f"the reader's schema has no message {self.message}") from error
        _check_message(message)
        return message_factory.GetMessageClass(message)

    def _check_name(self, kind: MessageClass) -> None:
        found = kind.DESCRIPTOR.full_name
        if found != self.message:
            raise SchemaError(f"the message is {found}, and the schema's is {self.message}")

    def _refuse(self, body: bytes) -> None:
        refuse_large(body)
        if len(body) > self._harmless and _count(body, self._message) > MOST_VALUES:
            raise SchemaError(f"the body has more than {MOST_VALUES} values")


def text_of_message(kind: type[Message]) -> str:
    """Returns the schema of a generated class, as a FileDescriptorProto in base64."""
    file = kind.DESCRIPTOR.file
    return base64.standard_b64encode(file.serialized_pb).decode("ascii")


def _declared(file: Descriptor) -> bytes:
    found = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(found)
    found.ClearField("name")
    found.ClearField("source_code_info")
    _clear_json_names(found.message_type)
    declared: bytes = found.SerializeToString(deterministic=True)
    return declared


def _clear_json_names(messages: Iterable[descriptor_pb2.DescriptorProto]) -> None:
    """Clears the names that only the compiler fills in."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        _clear_json_names(message.nested_type)


@lru_cache(1000)
def _file_of(text: str, references: tuple[tuple[str, str], ...]) -> Descriptor:
    """Returns the descriptor of a schema's file, in a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    files = (_serialized if _is_base64(text) else _compiled)(text, references)
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name)
    except Exception as error:
        raise SchemaError(f"schema: not a Protobuf schema: {problem_of(error)}") from error


def _is_base64(text: str) -> bool:
    return bool(text.strip()) and _BASE64.issuperset(text)


def _serialized(text: str, references: Iterable[tuple[str, str]]) -> list[descriptor_pb2.FileDescriptorProto]:
    """Returns the files of a schema in base64, each behind those that it imports."""
    given = {name: _file_proto(name, each) for name, each in references}
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def add(file: descriptor_pb2.FileDescriptorProto, inside: tuple[str, ...]) -> None:
        inside = (*inside, file.name)
        for name in file.dependency:
            if name in inside:
                raise SchemaError(f"schema: {name} imports itself")
            if name not in files:
                add(given[name] if name in given else _known_file(name), inside)
        files[file.name] = file

    main = _file_proto("", text)
    add(main, ())
    return list(files.values())


def _file_proto(name: str, text: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
    except (binascii.Error, ValueError) as error:
        raise SchemaError(f"schema: {name or 'it'} isn't a FileDescriptorProto in base64: {error}") from error
    except Exception as error:
        raise SchemaError(
            f"schema: {name or 'it'} isn't a FileDescriptorProto: {problem_of(error)}"
        ) from error
    file.name = name or file.name or _FILE
    return file


def _known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    """Returns a file that comes with protobuf."""
    module = name.removesuffix(".proto").replace("/", ".")
    try:
        if not name.startswith(("google/protobuf/", "google/type/")):
            raise ImportError(name)
        found = importlib.import_module(f"{module}_pb2")
    except ImportError as error:
        raise SchemaError(f"schema: it imports {name}, which isn't among its references") from error
    return descriptor_pb2.FileDescriptorProto.FromString(found.DESCRIPTOR.serialized_pb)


def _compiled(text: str, references: Iterable[tuple[str, str]]) -> list[descriptor_pb2.FileDescriptorProto]:
    """Returns the files of a schema in text, each behind those that it imports."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise FailedPrecondition(
            "the text of a .proto file needs the package grpcio-tools: pip install grpcio-tools, or give the schema "
            "as a FileDescriptorProto in base64"
        )
    with tempfile.TemporaryDirectory() as made:
        folder, target = Path(made), Path(made) / "descriptors"
        for name, each in (*references, (_FILE, text)):
            _write_file(folder, name, each)
        arguments = ["--include_imports", f"--descriptor_set_out={target}", f"-I{folder}", _FILE]
        try:
            ran = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *arguments],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SchemaError(f"schema: the compiler took more than {_PATIENCE} s") from error
        if ran.returncode != 0:
            problem = ran.stderr.replace(f"{folder}/", "").strip()
            raise SchemaError(f"schema: not a Protobuf schema: {problem}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file)


def _write_file(folder: Path, name: str, text: str) -> None:
    place = PurePosixPath(name)
    if place.suffix != ".proto" or place.is_absolute() or ".." in place.parts or (folder / place).exists():
        raise SchemaError(f"schema: the reference {name!r} isn't the name of a .proto file to import")
    if _is_base64(text):
        raise SchemaError(
            f"schema: the reference {name} is in base64 and the schema in text: give both alike"
        )
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(text, encoding="utf-8")


def _message_at(file: Descriptor, path: Sequence[int]) -> Descriptor:
    found: Descriptor = None
    inside = list(file.message_types_by_name.values())
    for number in path or [len(inside)]:
        if not 0 <= number < len(inside):
            raise SchemaError(f"schema: there is no message {list(path)} in it")
        found = inside[number]
        inside = list(found.nested_types)
    return found


def _check_message(message: Descriptor) -> int:
    """Refuses groups, which only old schemas have; returns the most values that a byte of a body can become."""
    most, waiting, seen = 1, [message], {message.full_name}
    while waiting:
        each = waiting.pop()
        # An empty message takes two bytes.
        most = max(most, len(each.fields))
        for field in each.fields:
            if field.type == field.TYPE_GROUP:
                raise SchemaError(f"schema: {each.full_name}.{field.name} is a group: make it a message")
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                waiting.append(field.message_type)
    return most


def _count(body: bytes, message: Descriptor) -> int:
    """Returns how many values a body has, each message with all its fields; stops once there are too many."""
    count, at = 1, 0
    inside: list[tuple[Descriptor, int]] = [(message, len(body))]
    while inside and count <= MOST_VALUES:
        message, end = inside[-1]
        if at >= end:
            inside.pop()
            continue
        tag, at = _number(body, at)
        field = message.fields_by_number.get(tag >> 3)
        wire = tag & 7
        count += 1
        if wire == 0:
            _, at = _number(body, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            size, at = _number(body, at)
            if field is not None and field.message_type is not None:
                count += len(field.message_type.fields)
                inside.append((field.message_type, min(at + size, end)))
                continue
            if field is not None and _is_repeated(field) and field.cpp_type != field.CPPTYPE_STRING:
                count += sum(byte < 0x80 for byte in body[at : at + size])
            at += size
    return count


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Reads a number of up to 64 bits; a broken one ends the count, for protobuf refuses the body."""
    try:
        return read_varint(body, at, 70)
    except ValueError:
        return 0, len(body)


_is_repeated, _is_map = lru_cache(10_000)(is_repeated), lru_cache(10_000)(is_map)


def _misfit(path: Place, problem: str) -> SchemaError:
    return SchemaError(f"{path_of(path)}: {problem}" if path else problem)


def _fill(message: AnyMessage, value: object, path: Place) -> None:
    """Sets a message to a value; raises `SchemaError` with the path of a field that doesn't fit."""
    special = _SPECIAL.get(message.DESCRIPTOR.full_name)
    if special is not None:
        _attempt(path, special[0], message, value)
        return
    if message.DESCRIPTOR.full_name in _WRAPPERS:
        _set(message, message.DESCRIPTOR.fields_by_name["value"], value, path)
        return
    if not isinstance(value, Mapping):
        raise _misfit(path, f"should be a mapping and not {type(value).__name__}")
    fields = message.DESCRIPTOR.fields_by_name
    chosen: dict[str, str] = {}
    for name, each in value.items():
        if name not in fields:
            raise _misfit((*path, str(name)), f"{message.DESCRIPTOR.full_name} has no such field")
        if each is None:
            continue
        choice = fields[name].containing_oneof
        if choice is not None and chosen.setdefault(choice.name, name) != name:
            raise _misfit(
                (*path, name), f"{chosen[choice.name]} is set too, and only one of {choice.name} may be"
            )
        _set(message, fields[name], each, (*path, name))


def _set(message: AnyMessage, field: Descriptor, value: object, path: Place) -> None:
    if _is_map(field):
        _set_map(message, field, value, path)
    elif _is_repeated(field):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise _misfit(path, f"should be a list and not {type(value).__name__}")
        items = getattr(message, field.name)
        for number, each in enumerate(value):
            deeper = (*path, number)
            if field.message_type is None:
                _attempt(deeper, items.append, _scalar(field, each, deeper))
            else:
                _fill(items.add(), each, deeper)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(inner, value, path)
    else:
        _attempt(path, setattr, message, field.name, _scalar(field, value, path))


def _set_map(message: AnyMessage, field: Descriptor, value: object, path: Place) -> None:
    if not isinstance(value, Mapping):
        raise _misfit(path, f"should be a mapping and not {type(value).__name__}")
    items, entry = getattr(message, field.name), field.message_type.fields_by_name
    for name, each in value.items():
        deeper = (*path, str(name))
        key = _scalar(entry["key"], name, deeper)
        if entry["value"].message_type is not None:
            _fill(_attempt(deeper, items.__getitem__, key), each, deeper)
        else:
            _attempt(deeper, items.__setitem__, key, _scalar(entry["value"], each, deeper))


def _attempt(path: Place, act: Callable[..., AnyMessage], *arguments: object) -> AnyMessage:
    try:
        return act(*arguments)
    except Exception as error:
        raise _misfit(path, str(error)) from error


def _scalar(field: Descriptor, value: object, path: Place) -> object:
    """Returns a value that protobuf takes; raises for some that it would change."""
    if field.enum_type is not None:
        value = value.value if isinstance(value, Enum) else value
        if not isinstance(value, str):
            return value
        if value not in field.enum_type.values_by_name:
            raise _misfit(path, f"{field.enum_type.full_name} has no value {value!r}")
        return field.enum_type.values_by_name[value].number
    strict = {
        field.CPPTYPE_BOOL: bool,
        field.CPPTYPE_STRING: bytes if field.type == field.TYPE_BYTES else str,
    }
    wanted = strict.get(field.cpp_type)
    if wanted is not None and not isinstance(value, wanted):
        raise _misfit(path, f"should be {wanted.__name__} and not {type(value).__name__}")
    if wanted is None and isinstance(value, bool):
        raise _misfit(path, "should be a number and not bool")
    if field.cpp_type == field.CPPTYPE_FLOAT and isinstance(value, float | int):
        return _attempt(path, fit_float, value)
    return value


def _plain_message(message: AnyMessage) -> object:
    """Returns a message as plain values."""
    return _reader_of(message.DESCRIPTOR)(message)


@lru_cache(10_000)
def _reader_of(message: Descriptor) -> Read:
    """Returns the function that makes a plain value of a message."""
    if message.full_name in _SPECIAL:
        return _SPECIAL[message.full_name][1]
    if message.full_name in _WRAPPERS:
        return attrgetter("value")
    fields = [(field.name, _field_reader(field)) for field in message.fields]
    return lambda value: {name: read(value) for name, read in fields}


def _field_reader(field: Descriptor) -> Read:
    """Returns the function that makes a plain value of a field, out of its message."""
    get = attrgetter(field.name)
    if _is_map(field):
        read = _value_reader(field.message_type.fields_by_name["value"])
        return lambda message: {key: read(each) for key, each in get(message).items()}
    read = _value_reader(field)
    if _is_repeated(field):
        return lambda message: [read(each) for each in get(message)]
    if field.has_presence:
        name = field.name
        return lambda message: read(get(message)) if message.HasField(name) else None
    return get if read is _same else lambda message: read(get(message))


def _value_reader(field: Descriptor) -> Read:
    if field.message_type is not None:
        return _plain_message
    if field.enum_type is not None:
        values = field.enum_type.values_by_number
        names = {number: each.name for number, each in values.items()}
        return lambda number: names.get(number, number)
    return _same


def _same(value: AnyMessage) -> object:
    return value


def _write_time(message: AnyMessage, value: object) -> None:
    if not isinstance(value, datetime):
        raise TypeError(f"should be a datetime and not {type(value).__name__}")
    message.FromDatetime(value.astimezone(UTC))


def _write_duration(message: AnyMessage, value: object) -> None:
    if not isinstance(value, timedelta):
        raise TypeError(f"should be a timedelta and not {type(value).__name__}")
    message.FromTimedelta(value)


def _write_struct(message: AnyMessage, value: object) -> None:
    from google.protobuf import json_format

    json_format.ParseDict(value, message)


def _read_struct(message: AnyMessage) -> object:
    from google.protobuf import json_format

    return json_format.MessageToDict(message)


#: How messages of protobuf's own are written and read.
_SPECIAL: dict[str, tuple[Callable[[AnyMessage, object], None], Read]] = {
    "google.protobuf.Timestamp": (_write_time, lambda message: message.ToDatetime(tzinfo=UTC)),
    "google.protobuf.Duration": (_write_duration, lambda message: message.ToTimedelta()),
    "google.protobuf.Struct": (_write_struct, _read_struct),
    "google.protobuf.Value": (_write_struct, _read_struct),
    "google.protobuf.ListValue": (_write_struct, _read_struct),
}
