"""Compares two JSON Schemas: the sure breaks between them.

Theory. Whether one JSON Schema takes all that another does can't be decided in general. These changes break for sure,
and people make them: a field that is required from now on, a type or a value of an enum that isn't taken any more, a
narrower bound, a field that isn't taken any more because others are forbidden.
Rule: a part that isn't understood (patterns, conditions, references to other files) is taken for unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kafka_pubsub.errors import SchemaError

__all__ = ["compare_json"]

_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_Part = Mapping[str, object]

#: References that lead to references, and breaks of a part.
_DEEPEST: Final = 40
_MOST: Final = 100


def compare_json(reader: str, writer: str) -> list[tuple[str, str]]:
    """Returns each field because of which `reader` refuses a document that `writer` takes, and why."""
    roots = _parsed(reader), _parsed(writer)
    return _Comparison(*roots).breaks(*roots)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(f"schema: not a JSON Schema: {error}") from error


class _Comparison:
    def __init__(self, reader: object, writer: object) -> None:
        self._reader, self._writer = reader, writer
        # By the two parts. A part that contains itself is taken for unchanged there.
        self._known: dict[tuple[int, int], list[tuple[str, str]]] = {}

    def breaks(self, reader: object, writer: object) -> list[tuple[str, str]]:
        """Returns the breaks in a part of the schemas, with paths from there."""
        reader, writer = _resolved(reader, self._reader), _resolved(writer, self._writer)
        if not isinstance(reader, Mapping) or not isinstance(writer, Mapping):
            return []
        pair = id(reader), id(writer)
        if pair not in self._known:
            self._known[pair] = []
            self._known[pair] = list(islice(self._compare(reader, writer), _MOST))
        return self._known[pair]

    def _compare(self, reader: _Part, writer: _Part) -> Iterator[tuple[str, str]]:
        read, written = _alternatives(reader), _alternatives(writer)
        if len(read) == len(written) == 1:
            yield from self._part(reader, writer)
            return
        for each in written:
            if all(self.breaks(other, each) for other in read):
                kinds = " or ".join(_kind(_resolved(other, self._reader)) for other in read)
                kind = _kind(_resolved(each, self._writer))
                yield "", f"a body may have {kind}, and only {kinds} is taken"

    def _part(self, reader: _Part, writer: _Part) -> Iterator[tuple[str, str]]:
        lost = [kind for kind in _types(writer) if kind not in _taken(reader)]
        if lost and _types(reader):
            yield "", f"a body may have {' or '.join(lost)}, and only {' or '.join(_types(reader))} is taken"
            return
        yield from _values(reader, writer)
        yield from _bounds(reader, writer)
        yield from self._fields(reader, writer)
        for path, problem in self.breaks(reader.get("items"), writer.get("items")):
            yield _joined("[]", path), problem

    def _fields(self, reader: _Part, writer: _Part) -> Iterator[tuple[str, str]]:
        read, written = _mapping(reader, "properties"), _mapping(writer, "properties")
        for name in map(str, _sequence(reader, "required")):
            if name not in _sequence(writer, "required"):
                yield name, "it is required, and bodies may lack it"
        if reader.get("additionalProperties") is False and not reader.get("patternProperties"):
            for name in written:
                if name not in read:
                    yield name, "bodies may have it, and it isn't taken"
            if writer.get("additionalProperties", True) is not False:
                yield "", "bodies may have any other field, and none is taken"
        for name in written:
            for path, problem in self.breaks(read.get(name), written[name]):
                yield _joined(name, path), problem


def _joined(name: str, path: str) -> str:
    return f"{name}.{path}" if path and not path.startswith("[") else name + path


def _resolved(part: object, root: object) -> object:
    """Returns the part to which a reference leads, inside of the same schema."""
    for _ in range(_DEEPEST):
        target = part.get("$ref") if isinstance(part, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return part
        part = root
        for step in target[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            part = part.get(name) if isinstance(part, Mapping) else None
    return None


def _alternatives(part: _Part) -> Sequence[object]:
    found = part.get("anyOf") or part.get("oneOf")
    return found if isinstance(found, list) else [part]


def _types(part: _Part) -> Sequence[str]:
    found = part.get("type")
    return [found] if isinstance(found, str) else [str(each) for each in _sequence(part, "type")]


def _taken(part: _Part) -> set[str]:
    found = set(_types(part))
    return found | {"integer"} if "number" in found else found


def _kind(part: object) -> str:
    types = _types(part) if isinstance(part, Mapping) else []
    return " or ".join(types) or "another form"


def _values(reader: _Part, writer: _Part) -> Iterator[tuple[str, str]]:
    read, written = _enum(reader), _enum(writer)
    lost = [each for each in written or [] if read is not None and each not in read]
    if lost:
        yield "", f"{', '.join(map(json.dumps, lost))} isn't taken"
    elif read is not None and written is None:
        yield "", "only some values are taken, and bodies may have others"


def _enum(part: _Part) -> Sequence[object] | None:
    if "const" in part:
        return [part["const"]]
    found = part.get("enum")
    return found if isinstance(found, list) else None


def _bounds(reader: _Part, writer: _Part) -> Iterator[tuple[str, str]]:
    for name in (*_LOWER, *_UPPER):
        bound, known = _number(reader, name), _number(writer, name)
        if bound is None:
            continue
        if known is None:
            yield "", f"{name} is {bound}, and of bodies it isn't set"
        elif bound > known if name in _LOWER else bound < known:
            yield "", f"{name} is {bound}, and of bodies it is {known}"


def _number(part: _Part, name: str) -> float | None:
    found = part.get(name)
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _mapping(part: _Part, name: str) -> _Part:
    found = part.get(name)
    return found if isinstance(found, Mapping) else {}


def _sequence(part: _Part, name: str) -> Sequence[object]:
    found = part.get(name)
    return found if isinstance(found, list) else []
