"""What can't be published is refused by the call, with a text that names the argument and what to do."""

from __future__ import annotations

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.publish.checks import (
    check_size,
    encode_attributes,
    encode_key,
    headers_size,
    refuse_data,
    stored_size,
)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "^Ordering key cannot be empty$"),
        ("x" * 1025, "^Ordering key exceeds maximum length of 1024 bytes$"),
        ("ä" * 513, "^Ordering key exceeds maximum length of 1024 bytes$"),
        ("user-\udc80", "character 5 is the lone surrogate"),
        (b"bytes", "ordering_key must be a string, not bytes"),
        (7, "ordering_key must be a string, not int"),
    ],
)
def test_keys_that_are_refused(key: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as refused:
        encode_key(key)
    assert refused.value.code == 3


@pytest.mark.parametrize("key", ["x", "x" * 1024, "ä" * 512, "a\0b", "👩‍👩‍👧"])
def test_keys_that_are_taken(key: str) -> None:
    assert encode_key(key) == key.encode()


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ([("a", "b")], "attributes must be a mapping of str to str, not list"),
        ({1: "b"}, "the name 1 must be a string, not int"),
        ({"a": b"b"}, "the value of 'a' must be a string, not bytes"),
        ({"a": None}, "the value of 'a' must be a string, not NoneType"),
        ({"ps-id": "x"}, "the name 'ps-id' begins with 'ps-', which is reserved"),
        ({"a\0b": "x"}, "contains a NUL"),
        ({"a": "\ud800"}, "the value of 'a' can't be encoded"),
        ({"\ud800": "a"}, "can't be encoded"),
    ],
)
def test_attributes_that_are_refused(attributes: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        encode_attributes(attributes)


def test_attributes_that_are_taken() -> None:
    assert encode_attributes({"größe": "ä", "": "", "PS-": "1"}) == [
        ("größe", "ä".encode()),
        ("", b""),
        ("PS-", b"1"),
    ]


@pytest.mark.parametrize("data", ["text", bytearray(b"x"), memoryview(b"x"), None, 7, {"a": 1}])
def test_data_that_is_refused_says_what_to_pass(data: object) -> None:
    text = str(refuse_data(data))
    assert text.startswith(f"data must be bytes, not {type(data).__name__}")
    assert ("publish_json" in text) == (not isinstance(data, bytearray | memoryview))


def test_a_message_above_the_limit_names_the_sizes() -> None:
    size = stored_size(b"x" * 1000, b"key", [("a", b"bc")])
    check_size("orders", b"x" * 1000, b"key", [("a", b"bc")], size)
    with pytest.raises(
        InvalidArgument, match=rf"message of {size} bytes \(data 1000, ordering key 3, attributes 3,"
    ):
        check_size("orders", b"x" * 1000, b"key", [("a", b"bc")], size - 1)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 200])
def test_the_quick_estimate_is_never_below_what_headers_take(count: int) -> None:
    headers: list[tuple[str, bytes | None]] = [(f"name-{n}" * 20, b"x" * n * 50) for n in range(count)]
    taken = stored_size(b"", None, headers) - stored_size(b"", None, [])
    # 8 bytes more at most: the lengths of the whole record and of the list of headers may grow as well.
    assert taken <= headers_size(headers) + 8
