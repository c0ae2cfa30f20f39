"""The limits of the codecs, each taken out on purpose: the search of `hostile_records` must notice."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import jsonschema
import pytest
from fastavro.read import LOGICAL_READERS
from pydantic_core import core_schema

from kafka_pubsub.records import avro, json_schema, limits, protobuf
from kafka_pubsub.records.codec import Format

__all__ = ["MUTATIONS"]

Patch = pytest.MonkeyPatch
Mutation: TypeAlias = Callable[[Patch], None]
_FAR = 2**62


def _raise(error: Exception) -> str:
    raise error


def schemas_may_contain_themselves(patch: Patch) -> None:
    """A schema that contains itself is taken for one that doesn't."""
    real = limits._Walk._size_of_name

    def size_of_name(self: Any, name: str, depth: int) -> Any:
        return limits._Size(1, 1) if name in self.inside else real(self, name, depth)

    patch.setattr(limits._Walk, "_size_of_name", size_of_name)
    # So the check of values knows an end, too.
    known = avro._Rules.of

    def of(self: Any, node: Any) -> Any:
        if isinstance(node, str) and node in self._named:
            return core_schema.any_schema()
        return known(self, node)

    patch.setattr(avro._Rules, "of", of)


def items_may_take_no_bytes(patch: Patch) -> None:
    """An array of nothing counts as an array of bytes."""
    real = limits._Walk.size_of

    def size_of(self: Any, node: Any, depth: int) -> Any:
        found = real(self, node, depth)
        return found._replace(reads=max(1, found.reads))

    patch.setattr(limits._Walk, "size_of", size_of)


def values_of_avro_are_not_counted(patch: Patch) -> None:
    patch.setattr(limits.Growth, "harmless", property(lambda self: _FAR))


def decimals_are_read_by_fastavro(patch: Patch) -> None:
    for kind in ("bytes", "fixed"):
        patch.setitem(LOGICAL_READERS, f"{kind}-{avro._DECIMAL}", LOGICAL_READERS[f"{kind}-decimal"])


def bytes_may_be_left_over(patch: Patch) -> None:
    class Patient(io.BytesIO):
        def tell(self) -> int:
            return len(self.getvalue())

    patch.setattr(io, "BytesIO", Patient)


def fastavro_checks_values(patch: Patch) -> None:
    """Values are written as fastavro takes them."""
    patch.setattr(
        avro,
        "SchemaValidator",
        lambda rules: type("Any", (), {"validate_python": staticmethod(lambda value: value)}),
    )


def errors_of_fastavro_escape(patch: Patch) -> None:
    patch.setattr(avro, "problem_of", _raise)


def patterns_are_python_s(patch: Patch) -> None:
    patch.setattr(json_schema, "_matcher", lambda pattern: lambda text: re.search(pattern, text) is not None)


def references_are_not_counted(patch: Patch) -> None:
    patch.setattr(json_schema, "MOST_REFERENCES", _FAR)
    patch.setattr(json_schema, "_FEW_REFERENCES", _FAR)


def items_are_compared_in_pairs(patch: Patch) -> None:
    json_schema._careful.cache_clear()
    patch.setattr(json_schema, "_unique_items", jsonschema.Draft202012Validator.VALIDATORS["uniqueItems"])


def values_of_protobuf_are_not_counted(patch: Patch) -> None:
    patch.setattr(protobuf, "_count", lambda body, message: 0)


def errors_of_protobuf_escape(patch: Patch) -> None:
    patch.setattr(protobuf, "problem_of", _raise)


def protobuf_checks_values(patch: Patch) -> None:
    """A wrong type is taken where protobuf takes it."""
    patch.setattr(protobuf, "_scalar", lambda field, value, path: value)


_AVRO: tuple[Mutation, ...] = (
    schemas_may_contain_themselves,
    items_may_take_no_bytes,
    values_of_avro_are_not_counted,
    decimals_are_read_by_fastavro,
    bytes_may_be_left_over,
    fastavro_checks_values,
    errors_of_fastavro_escape,
)
_JSON: tuple[Mutation, ...] = (patterns_are_python_s, references_are_not_counted, items_are_compared_in_pairs)
_PROTOBUF: tuple[Mutation, ...] = (
    values_of_protobuf_are_not_counted,
    errors_of_protobuf_escape,
    protobuf_checks_values,
)

#: By name the format that each concerns.
MUTATIONS: dict[str, tuple[Format, Mutation]] = {
    **{rule.__name__: ("avro", rule) for rule in _AVRO},
    **{rule.__name__: ("json", rule) for rule in _JSON},
    **{rule.__name__: ("protobuf", rule) for rule in _PROTOBUF},
}
