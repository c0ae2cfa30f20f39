"""A batch in the value of a record: what is written is read again, and what is damaged isn't guessed."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.multicast.batch import (
    BATCH_OVERHEAD,
    BatchMessage,
    batch_size,
    count_of_batch,
    decode_batch,
    encode_batch,
)

HEADERS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), st.none() | st.binary(max_size=12)),
    max_size=4,
)
MESSAGES = st.builds(
    BatchMessage,
    time=st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(max_size=8),
    data=st.binary(max_size=40),
    headers=HEADERS,
)
BATCHES = st.lists(MESSAGES, min_size=1, max_size=12)
#: A batch of each kind.
BATCH = [
    BatchMessage(1_700_000_000_123, b"k", b"body", [("a", b"1"), ("a", None), ("ä", b"")]),
    BatchMessage(1_700_000_000_124, None, b"", []),
]


@given(BATCHES)
def test_what_is_written_is_read_again(messages: list[BatchMessage]) -> None:
    value = encode_batch(messages)
    assert decode_batch(value) == messages
    assert len(value) <= BATCH_OVERHEAD + sum(map(batch_size, messages))


@given(BATCHES, st.data())
def test_damaged_bytes_say_nothing(messages: list[BatchMessage], data: st.DataObject) -> None:
    value = encode_batch(messages)
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = value[:at] + bytes([value[at] ^ data.draw(st.integers(1, 255))]) + value[at + 1 :]
    assert decode_batch(damaged) is None
    assert decode_batch(value[:at]) is None
    assert decode_batch(value + b"x") is None


@given(st.binary(max_size=80))
def test_foreign_bytes_say_nothing_even_with_a_good_checksum(body: bytes) -> None:
    assert decode_batch(b"\1" + body) is None or zlib.crc32(b"\1" + body[:-4]) == int.from_bytes(
        body[-4:], "big"
    )
    found = decode_batch(sealed(b"\1" + body))
    assert found is None or all(isinstance(each, BatchMessage) for each in found)


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(
    "body",
    [
        b"\2" + encode_batch(BATCH)[1:-4],
        struct.pack(">BI", 1, 0),
        struct.pack(">BI", 1, 2**32 - 1),
        struct.pack(">BIqiII", 1, 1, 0, -2, 0, 0),
        struct.pack(">BIqiII", 1, 1, 0, -1, 0, 5),
        struct.pack(">BIqiII", 1, 1, 0, -1, 3, 0) + b"abc",
        struct.pack(">BIqiIIIi", 1, 1, 0, -1, 8, 0, 9, 0),
        struct.pack(">BIqiIIIi", 1, 1, 0, -1, 8, 0, 0, -2),
        struct.pack(">BIqiIIIi", 1, 1, 0, -1, 9, 0, 1, 0) + b"\xff",
    ],
)
def test_what_doesnt_fit_together_says_nothing(body: bytes) -> None:
    assert decode_batch(sealed(body)) is None


@pytest.mark.parametrize("value", [None, b"", b"\1", bytes(BATCH_OVERHEAD)])
def test_no_bytes_say_nothing(value: bytes | None) -> None:
    assert decode_batch(value) is None


def test_the_number_of_messages_is_known_without_reading_them() -> None:
    assert count_of_batch(encode_batch(BATCH)) == len(BATCH)
    assert [count_of_batch(each) for each in (None, b"", bytes(BATCH_OVERHEAD))] == [1, 1, 1]


def test_the_format_of_version_1_stays() -> None:
    assert encode_batch(BATCH).hex() == FORMAT


#: `BATCH` as written since the first version.
FORMAT = (
    "01000000020000018bcfe5687b0000018bcfe5687c00000001ffffffff0000001d0000000000000004000000006b0000"
    "000100000001613100000001ffffffff610000000200000000c3a4626f6479daa2f974"
)
