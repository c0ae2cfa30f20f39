"""Code that is made for an Avro schema, beside fastavro: the same value, or fastavro is asked."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from fastavro.utils import generate_many

from kafka_pubsub.errors import SchemaError
from kafka_pubsub.records import avro_code
from kafka_pubsub.records.avro import AvroCodec
from tests.property.record_shapes import hostile, random_shape, text_of, value_of
from tests.seeds import fixed, of_the_day

#: Bodies of one schema that were damaged on purpose.
DAMAGED = 40
#: What a frame of a registry takes, and how the code is used behind it.
FRAME = b"\0\0\0\0\1"
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
#: Schemas of kinds that `random_shape` doesn't make; each is the type of a field.
OTHERS: tuple[object, ...] = (
    [INNER, "shop.Inner", {"type": "array", "items": "shop.Inner"}],
    {"type": "error", "name": "Problem", "namespace": "else", "fields": [{"name": "a", "type": "string"}]},
    [
        "null",
        "int",
        "string",
        {"type": "map", "values": "double"},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    ],
    {"type": "array", "items": ["boolean", "bytes", {"type": "fixed", "name": "F", "size": 2}, "float"]},
    {"type": "map", "values": {"type": "map", "values": ["null", {"type": "array", "items": "long"}]}},
    {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}},
    {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}},
    {"type": "array", "items": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {
        "type": "array",
        "items": {"type": "record", "name": "None", "fields": [{"name": "value", "type": "string"}]},
    },
)


def random_bodies(seed: int) -> tuple[AvroCodec, Iterator[bytes]] | None:
    """A random schema, and bodies that were written by it; None: the schema is refused."""
    random = Random(seed)
    shape = random_shape(random, "avro")
    try:
        codec = AvroCodec(text_of(shape, "avro"), {})
    except SchemaError:
        return None
    return codec, (codec.encode(value_of(shape, random, "avro")) for _ in range(DAMAGED))


def compare(codec: AvroCodec, bodies: Iterable[bytes], random: Random) -> Counter[str]:
    """Reads bodies, damaged ones, too; returns how many the code has read, and how many it left to fastavro."""
    found: Counter[str] = Counter()
    read, slowly = codec.decoder(None, None, len(FRAME)), codec._decode_slowly
    left: list[bytes] = []

    def noted(body: bytes, *how: Any) -> object:
        left.append(body)
        return slowly(body, *how)

    codec._decode_slowly = noted  # type: ignore[method-assign, assignment]
    for number, written in enumerate(bodies):
        body = hostile(written, random) if number else written
        left.clear()
        expected = by_fastavro(body, codec)
        try:
            value = read(FRAME + body)
        except SchemaError:
            assert expected is REFUSED
            found["refused"] += 1
            continue
        # NaN differs from itself.
        assert repr(value) == repr(expected)
        found["left" if left else "read"] += 1
    return found


def compared(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        made = random_bodies(seed)
        if made is not None:
            found["schemas"] += 1
            found += compare(*made, Random(seed))
    return found


def others() -> Counter[str]:
    found: Counter[str] = Counter()
    for place, kind in enumerate(OTHERS):
        schema = {"type": "record", "name": "R", "namespace": "shop", "fields": [{"name": "f", "type": kind}]}
        codec = AvroCodec(json.dumps(schema), {})
        assert codec._made is not None
        for value in generate_many(schema, 20):
            written = io.BytesIO()
            schemaless_writer(written, codec._parsed, value)
            found += compare(codec, [written.getvalue()] * DAMAGED, Random(place))
    return found


#: In place of a value.
REFUSED = object()


def by_fastavro(body: bytes, codec: AvroCodec) -> object:
    source = io.BytesIO(body)
    try:
        value = schemaless_reader(source, codec._parsed, None)
    except Exception:
        return REFUSED
    return value if source.tell() == len(body) else REFUSED


@pytest.mark.parametrize("seeds", [fixed(300), of_the_day(300)], ids=["fixed", "of the day"])
def test_both_read_the_same(seeds: range) -> None:
    found = compared(seeds)
    assert found["schemas"] > 200
    assert min(found["read"], found["refused"]) > 1000
    # Those with a negative number where fastavro counts from the end.
    assert found["left"] < found["read"] / 20


def test_both_read_the_same_of_other_schemas() -> None:
    found = others()
    assert min(found["read"], found["refused"]) > 1000
    assert found["left"] < found["read"] / 10


def negative_lengths_are_lengths(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(avro_code._Code, "_refuse_negative", lambda self, indent: None)


def numbers_have_no_end(patch: pytest.MonkeyPatch) -> None:
    def read_more(body: bytes, at: int, number: int) -> tuple[int, int]:
        number, shift = number & 0x7F, 7
        while True:
            byte, at = body[at], at + 1
            number, shift = number | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return number, at

    patch.setattr(avro_code, "_read_more", read_more)


def a_block_has_no_size(patch: pytest.MonkeyPatch) -> None:
    begin = avro_code._Code._begin_block

    def begin_block(self: avro_code._Code, indent: int) -> None:
        begin(self, indent)
        self.lines = [line.replace("if number & 1:", "if False:") for line in self.lines]

    patch.setattr(avro_code._Code, "_begin_block", begin_block)


def logical_types_are_plain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(avro_code, "LOGICAL_READERS", {})


MUTATIONS = {
    each.__name__: each
    for each in (
        negative_lengths_are_lengths,
        numbers_have_no_end,
        a_block_has_no_size,
        logical_types_are_plain,
    )
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_reader_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    with pytest.raises(AssertionError):
        compared(fixed(300)) + others()
