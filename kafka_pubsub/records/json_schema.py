"""Bodies in JSON that fit a JSON Schema, without a frame.

Theory. Many values, a pattern and references can each take time without end. So values and references are counted,
patterns run in an engine whose time is linear (Rust's, in pydantic-core), and unique items are compared by hash.

Rules
1. Nothing is fetched: a schema refers to itself, to the drafts of JSON Schema, and to the references given with it.
2. The draft is that of `$schema`; without it the newest, or draft 7 if only draft 7 allows the schema.
3. JSON has no defaults: a reader's schema only checks the body.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias, cast

from jsonschema import Draft7Validator, Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from pydantic_core import SchemaValidator, core_schema, from_json
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from kafka_pubsub.errors import SchemaError
from kafka_pubsub.records.codec import Codec, Format
from kafka_pubsub.records.limits import MOST_REFERENCES, MOST_VALUES, Node, refuse_large
from kafka_pubsub.records.values import json_checker_of, path_of, plain_json, problem_of

__all__ = ["JsonCodec"]

Draft: TypeAlias = Any
Resolver: TypeAlias = Any

#: References that a check may follow: a few, and so many for each byte of the body, up to the limit.
_FEW_REFERENCES, _REFERENCES_OF_A_BYTE = 1_000, 10
#: Characters of an error's text, which may hold the value.
_SHORT = 300
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: Values of every type, to find a schema that refers to itself without end.
_TRIED: tuple[object, ...] = ({}, [], "", 0, None, True)
#: References that the check of one value may still follow.
_left = threading.local()

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class JsonCodec:
    """A JSON Schema: bodies are JSON that fits it."""

    format: Format = "json"

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self.text = text
        schema = _parsed("schema", text)
        others = {name: _parsed(f"reference {name}", each) for name, each in references.items()}
        try:
            for each in (schema, *others.values()):
                _check_patterns(each)
            self._validator = _validator(schema, others)
            for value in _TRIED:
                self._problem(value, 0)
        except SchemaError:
            raise
        except Exception as error:
            raise SchemaError(f"schema: not a JSON Schema: {problem_of(error)}"[:_SHORT]) from error

    def encode(self, value: object) -> bytes:
        """See `Codec`."""
        try:
            given = plain_json(value)
            body = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except Exception as error:
            raise SchemaError(f"the value isn't JSON: {problem_of(error)}"[:_SHORT]) from error
        self._check(_read(body), body)
        return body

    def read_json(self, text: bytes) -> object:
        """See `Codec`."""
        value = _read(text)
        self._check(value, text)
        return value

    def decoder(self, kind: type | None, reader: Codec | None, begin: int) -> Callable[[bytes], object]:
        """See `Codec`."""
        return lambda body: self.decode(body[begin:], kind, reader)

    def decode(self, body: bytes, kind: type | None = None, reader: Codec | None = None) -> object:
        """See `Codec`."""
        if reader is not None and not isinstance(reader, JsonCodec):
            raise SchemaError(f"a body in JSON can't be read as a schema of the format {reader.format}")
        check = None if kind is None else json_checker_of(kind)
        value = _read(body)
        (reader or self)._check(value, body)
        if check is None:
            return value
        try:
            return check(body)
        except Exception as error:
            raise SchemaError(problem_of(error)) from error

    def _check(self, value: object, body: bytes) -> None:
        try:
            problem = self._problem(value, len(body))
        except SchemaError:
            raise
        except Exception as error:
            raise SchemaError(f"the value can't be checked: {problem_of(error)}"[:_SHORT]) from error
        if problem is not None:
            path = path_of(list(problem.absolute_path))
            raise SchemaError((f"{path}: {problem.message}" if path else problem.message)[:_SHORT])

    def _problem(self, value: object, size: int) -> ValidationError | None:
        _left.references = min(MOST_REFERENCES, _FEW_REFERENCES + size * _REFERENCES_OF_A_BYTE)
        errors = self._validator.iter_errors(value)
        first = next(errors, None)
        return None if first is None else best_match(chain([first], errors))


def _parsed(name: str, text: str) -> Node:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise SchemaError(f"{name}: not JSON: {error}") from error


def _read(body: bytes) -> object:
    """Parses JSON; raises `SchemaError` for a body that isn't JSON or has too many values."""
    refuse_large(body)
    if len(body) > MOST_VALUES and _most_values(body) > MOST_VALUES:
        raise SchemaError(f"the body has more than {MOST_VALUES} values")
    try:
        value: object = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise SchemaError(f"not JSON ({len(body)} bytes): {error}") from error
    return value


def _most_values(body: bytes) -> int:
    """Returns how many values JSON can have at most: each begins the body, or stands behind one of these marks."""
    marks = (b",", b":", b"[", b"{")
    if sum(map(body.count, marks)) >= MOST_VALUES:
        body = _STRING.sub(b"", body)
    return 1 + sum(map(body.count, marks))


def _validator(schema: Node, others: Mapping[str, Any]) -> Validator:
    draft = _draft_of(schema)
    draft.check_schema(schema)
    resources = {name: Resource.from_contents(each, DRAFT202012) for name, each in others.items()}
    registry: Registry[Node] = REGISTRY.with_resources(resources.items())
    own: Resource[Node] = specification_with(draft.ID_OF(draft.META_SCHEMA)).create_resource(schema)
    for each in (own, *resources.values()):
        _check_references(each.contents, registry.resolver_with_root(each))
    return cast("Validator", _careful(draft)(schema, registry=registry))


def _check_references(node: Node, resolver: Resolver) -> None:
    """Raises `SchemaError` for a reference that leads nowhere; nothing is fetched."""
    if isinstance(node, list):
        for each in node:
            _check_references(each, resolver)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("$id"), str):
        resolver = resolver.in_subresource(DRAFT202012.create_resource(node))
    if isinstance(node.get("$ref"), str):
        try:
            resolver.lookup(node["$ref"])
        except Unresolvable as error:
            raise SchemaError(
                f"schema: it refers to {node['$ref']}, which is neither in it nor among its references"
            ) from error
    for each in node.values():
        _check_references(each, resolver)


def _draft_of(schema: Node) -> Draft:
    if isinstance(schema, bool):
        return Draft202012Validator
    if not isinstance(schema, dict):
        raise SchemaError("schema: not a JSON Schema: neither an object nor a boolean")
    if "$schema" in schema:
        draft: Draft = validator_for(schema, default=Draft202012Validator)
        return draft
    return Draft202012Validator if _fits(schema, Draft202012Validator) else Draft7Validator


def _fits(schema: Node, draft: Draft) -> bool:
    return not any(True for _ in draft(draft.META_SCHEMA).iter_errors(schema))


@lru_cache
def _careful(draft: Draft) -> Draft:
    """Returns a draft's validator with our keywords."""
    theirs = draft.VALIDATORS
    counted = {name: _counted(theirs[name]) for name in _REFERENCES if name in theirs}
    ours: dict[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties(theirs["additionalProperties"]),
        "uniqueItems": _unique_items,
        **counted,
    }
    careful: Draft = extend(draft, ours)
    return careful


def _counted(keyword: Keyword) -> Keyword:
    def follow(
        validator: Node, value: Node, instance: Node, schema: Node
    ) -> Iterable[ValidationError] | None:
        _left.references -= 1
        if _left.references < 0:
            raise SchemaError(
                f"the check of the value takes too long: more than {MOST_REFERENCES} references"
            )
        return keyword(validator, value, instance, schema)

    return follow


@lru_cache(10_000)
def _matcher(pattern: str) -> Callable[[str], bool]:
    rule = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    try:
        return SchemaValidator(rule).isinstance_python
    except Exception as error:
        raise SchemaError(
            f"schema: pattern {pattern!r} can't be matched in linear time: write it without look-around and back "
            "references"
        ) from error


def _check_patterns(node: Node) -> None:
    if isinstance(node, list):
        for each in node:
            _check_patterns(each)
    if not isinstance(node, dict):
        return
    if "unevaluatedProperties" in node and "patternProperties" in node:
        raise SchemaError("schema: unevaluatedProperties beside patternProperties: use additionalProperties")
    if isinstance(node.get("pattern"), str):
        _matcher(node["pattern"])
    if isinstance(node.get("patternProperties"), dict):
        for pattern in node["patternProperties"]:
            _matcher(pattern)
    for each in node.values():
        _check_patterns(each)


def _pattern(validator: Node, pattern: str, instance: Node, schema: Node) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matcher(pattern)(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Node, rules: Node, instance: Node, schema: Node
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, rule in rules.items():
        matches = _matcher(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from validator.descend(value, rule, path=name, schema_path=pattern)


def _additional_properties(theirs: Keyword) -> Keyword:
    def check(validator: Node, rule: Node, instance: Node, schema: Node) -> Iterable[ValidationError] | None:
        if not isinstance(instance, dict) or "patternProperties" not in schema:
            return theirs(validator, rule, instance, schema)
        matchers = [_matcher(pattern) for pattern in schema["patternProperties"]]
        known = schema.get("properties", {})
        others = {
            name: value
            for name, value in instance.items()
            if name not in known and not any(matches(name) for matches in matchers)
        }
        return theirs(validator, rule, others, {})

    return check


def _unique_items(validator: Node, wanted: bool, instance: Node, schema: Node) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list) and len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("the items aren't unique")


def _hashable(value: Node) -> object:
    """Returns a value that is equal to others as JSON Schema says: a number is not a boolean."""
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, list):
        return list, tuple(map(_hashable, value))
    if isinstance(value, dict):
        return dict, frozenset((name, _hashable(each)) for name, each in value.items())
    return value
