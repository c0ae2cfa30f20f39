"""Records: no byte is lost or changed between append and read."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub.model import Header, StoredRecord
from tests.contract.world import World, until


def _through(
    world: World, value: bytes | None, key: bytes | None = None, headers: list[Header] | None = None
) -> StoredRecord:
    topic = world.topic()
    world.write(topic, [value], key, headers)
    member = world.member(world.name("group"), topic)
    until(lambda: member.records, member)
    return member.records[0]


@pytest.mark.parametrize("value", [b"plain", b"", None, b"\x00\xff\xfe", bytes(range(256)) * 100])
def test_a_value_comes_as_it_was_written(world: World, value: bytes | None) -> None:
    record = _through(world, value, key=b"k")
    assert record.value() == value
    assert len(record) == len(value or b"")


@pytest.mark.parametrize("key", [b"plain", b"", None, b"\xc3\x28\xff", b"\x00", b"k" * 1024])
def test_a_key_comes_as_it_was_written(world: World, key: bytes | None) -> None:
    assert _through(world, b"v", key=key).key() == key


@pytest.mark.parametrize(
    "headers",
    [
        [("a", b"1")],
        [("a", b"1"), ("b", b"2"), ("a", b"3"), ("a", b"1")],
        [("binary", bytes(range(256))), ("empty", b""), ("none", None)],
        [("ünïcödé", "wért".encode())],
        [("", b"no name")],
    ],
)
def test_headers_come_in_their_order_with_repeats(world: World, headers: list[Header]) -> None:
    assert _through(world, b"v", headers=headers).headers() == headers


@pytest.mark.parametrize("headers", [None, []])
def test_no_headers_are_none_or_empty(world: World, headers: list[Header] | None) -> None:
    assert not _through(world, b"v", headers=headers).headers()


def test_a_record_says_where_it_lies_and_when_it_was_written(world: World) -> None:
    before = time.time()
    record = _through(world, b"v")
    assert (record.topic() or "").startswith("contract-")
    assert (record.partition(), record.offset()) == (0, 0)
    _, milliseconds = record.timestamp()
    # Generous: both clocks are this machine's.
    assert before - 5 < milliseconds / 1000 < time.time() + 5


def test_a_record_is_true_even_without_a_value(world: World) -> None:
    """`len()` gives a record a truth value; none may look like nothing because it is empty."""
    record = _through(world, None)
    assert record is not None
    assert len(record) == 0
