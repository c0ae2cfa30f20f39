"""Bodies as JSON: of values that pydantic can serialise, and as types that pydantic can check.

Rule: pydantic is imported with this module, so modules that must do without it import this one where it is used.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from kafka_pubsub.errors import InvalidArgument

__all__ = ["decode_json", "encode_body", "encode_json"]


#: What checks values of a type, for the types that were asked for.
_adapters: dict[type, TypeAdapter[object]] = {}


def encode_json(obj: object) -> bytes:
    """Encodes `obj` as compact JSON; raises `InvalidArgument` if neither JSON nor pydantic can represent it."""
    try:
        if isinstance(obj, BaseModel):
            return to_json(obj)
        return json.dumps(
            obj, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_say
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"obj can't be published as JSON: {error}") from error


def _say(value: object) -> object:
    """Returns a value that the json module doesn't know as one that it does."""
    if isinstance(value, bytes | bytearray | set | frozenset):
        raise TypeError(f"{type(value).__name__} isn't JSON")  # pydantic would make text or a list of it
    found: object = to_jsonable_python(value)
    return found


def encode_body(value: object) -> bytes:
    """Returns the body of a value: bytes as they are, text in UTF-8, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else encode_json(value)


def decode_json(body: bytes, kind: type) -> object:
    """Returns the body as a value of the type; raises a `ValueError` that names each wrong field."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind].validate_json(body)
