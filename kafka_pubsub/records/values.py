"""Values of users' types as plain values, and plain values as users' types; and the path of a field that doesn't fit.

Rules
1. Names in bodies are the aliases of a pydantic model's fields, where it has them, as in pydantic's JSON.
2. A type that pydantic can't check is a mistake of the program: `InvalidArgument`, when the type is first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, SchemaSerializer, core_schema

from kafka_pubsub.errors import InvalidArgument

__all__ = [
    "NAMED_PROBLEMS",
    "checker_of",
    "fit_float",
    "json_checker_of",
    "path_of",
    "plain",
    "plain_json",
    "problem_of",
]

#: Turns models and dataclasses into dicts, also inside of mappings and lists.
_ANY = SchemaSerializer(core_schema.any_schema())
_LARGEST_FLOAT = 3.4028234663852886e38
#: How pydantic says that the problem is a mapping's key.
_KEY = "[key]"
#: Problems that an error's text names.
NAMED_PROBLEMS = 3


def plain(value: object) -> object:
    """Returns models and dataclasses as dicts; other values stay as they are."""
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_python(value, by_alias=True, warnings=False)
    return _ANY.to_python(_as_dict(value), by_alias=True, warnings=False)


def plain_json(value: object) -> object:
    """Returns a value as JSON has it: times and decimals as text."""
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_python(value, mode="json", by_alias=True, warnings=False)
    return _ANY.to_python(_as_dict(value), mode="json", by_alias=True, warnings=False)


def _as_dict(value: object) -> object:
    # pydantic-core looks into a dict and into no other mapping.
    return dict(value) if isinstance(value, Mapping) else value


@lru_cache(1000)
def checker_of(kind: type) -> Callable[[object], object]:
    """Returns the function that makes a value of the type out of plain values; it raises pydantic's error."""
    return cast("Callable[[object], object]", _adapter_of(kind).validator.validate_python)


@lru_cache(1000)
def json_checker_of(kind: type) -> Callable[[bytes], object]:
    """Returns the function that makes a value of the type out of JSON; it raises pydantic's error."""
    return cast("Callable[[bytes], object]", _adapter_of(kind).validator.validate_json)


def _adapter_of(kind: type) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except Exception as error:
        raise InvalidArgument(f"kind {kind!r} isn't a type that pydantic can check: {error}") from error


def fit_float(value: float) -> float:
    """Returns a number that a float of four bytes can hold; raises `ValueError` for one that would be infinite."""
    if _LARGEST_FLOAT < abs(value) < math.inf:
        raise ValueError("too large for a float: a double holds it")
    return value


def path_of(places: Sequence[str | int]) -> str:
    """Returns a field's place as a path: `items[2].price`."""
    path = ""
    for place in places:
        if place == _KEY:
            continue
        path += f"[{place}]" if isinstance(place, int) else f".{place}" if path else place
    return path


def problem_of(error: Exception) -> str:
    """Returns an error in a line; of pydantic's with the path of each field."""
    if not isinstance(error, ValidationError):
        lines = str(error).splitlines()
        return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    found = error.errors(include_url=False, include_input=False, include_context=False)
    texts = [_text_of(each) for each in found[:NAMED_PROBLEMS]]
    if len(found) > NAMED_PROBLEMS:
        texts.append(f"and {len(found) - NAMED_PROBLEMS} more")
    return "; ".join(texts)


def _text_of(problem: ErrorDetails) -> str:
    path = path_of(problem["loc"])
    return f"{path}: {problem['msg']}" if path else problem["msg"]
