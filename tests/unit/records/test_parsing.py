"""A schema is parsed by its format, and a package that is missing is named."""

from __future__ import annotations

import sys

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument
from kafka_pubsub.records.codec import FORMATS, Codec, Format
from kafka_pubsub.records.parsing import parse_schema

TEXTS = {"avro": '"int"', "json": "true", "protobuf": 'syntax = "proto3"; message A { int32 a = 1; }'}


@pytest.mark.parametrize("format", FORMATS)
def test_a_schema_is_parsed_by_its_format(format: Format) -> None:
    codec: Codec = parse_schema(format, TEXTS[format])
    assert (codec.format, codec.text) == (format, TEXTS[format])


def test_another_format_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="use avro, json, protobuf"):
        parse_schema("xml", "<a/>")  # type: ignore[arg-type]


@pytest.mark.parametrize(("format", "package"), [("json", "jsonschema"), ("protobuf", "google.protobuf")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, format: Format, package: str) -> None:
    for name in [
        each
        for each in sys.modules
        if each.startswith(("kafka_pubsub.records.json", "kafka_pubsub.records.prot"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FailedPrecondition, match=rf"{package}.*kafka-pubsub-orderly\[schema\]"):
        parse_schema(format, TEXTS[format])
