"""The data that travel with a moved message: they come back as they were written, or are known to be broken."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Header
from kafka_pubsub.subscribe.formats import record as retry_record
from kafka_pubsub.subscribe.formats.record import (
    ERROR_BYTES,
    FOREVER,
    NO_MESSAGES,
    RETRY_HEADER,
    Broken,
    Death,
    RetryInfo,
    RetryRecord,
    Why,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INFOS = st.builds(
    RetryInfo,
    topic_id=st.text("abcXYZ-_0", max_size=22),
    partition=st.integers(0, 2**31),
    origin=st.integers(0, 2**63 - 1),
    attempt=st.integers(1, 0xFFFF),
    crashes=st.integers(0, 0xFF),
    due=st.integers(0, FOREVER),
    why=st.sampled_from(Why),
    failed=st.integers(0, 2**50),
    error=TEXT,
)


class Record:
    """A record of the retry topic."""

    def __init__(self, headers: list[Header] | None, key: bytes | None = b"k", offset: int = 7) -> None:
        self._headers, self._key, self._offset = headers, key, offset

    def topic(self) -> str:
        return "orders.sub.billing.retry"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return b"body"

    def headers(self) -> list[Header] | None:
        return self._headers

    def leader_epoch(self) -> int | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 1234)

    def __len__(self) -> int:
        return 4


@given(INFOS)
def test_it_comes_back_as_it_was_written(info: RetryInfo) -> None:
    assert retry_record.decode(retry_record.encode(info)) == info


@given(INFOS, st.data())
def test_a_damaged_header_is_broken(info: RetryInfo, data: st.DataObject) -> None:
    value = bytearray(retry_record.encode(info))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    assert isinstance(retry_record.decode(bytes(value)), Broken)
    assert isinstance(retry_record.decode(bytes(retry_record.encode(info)[:at])), Broken)


@given(st.binary(max_size=80))
def test_anything_else_is_broken(value: bytes) -> None:
    assert isinstance(retry_record.decode(value), Broken)
    assert isinstance(retry_record.decode(None), Broken)


def test_a_right_checksum_under_wrong_contents_is_broken() -> None:
    for at, byte in ((1, 99), (33, 200)):
        body = bytearray(retry_record.encode(RetryInfo("id", 3, 5))[:-4])
        body[at] = byte
        assert isinstance(retry_record.decode(bytes(body) + zlib.crc32(body).to_bytes(4, "big")), Broken)


def of_version(version: int, value: bytes) -> bytes:
    body = bytes([version]) + value[1:-4]
    return body + zlib.crc32(body).to_bytes(4, "big")


def test_an_older_version_that_never_was_is_broken_and_says_which() -> None:
    found = retry_record.decode(of_version(0, retry_record.encode(RetryInfo("id", 3, 5))))
    assert isinstance(found, Broken)
    assert "version 0" in found.reason


@given(INFOS, st.integers(2, 255), st.binary(max_size=40))
def test_a_newer_version_is_refused_whatever_it_says(info: RetryInfo, version: int, more: bytes) -> None:
    newer = of_version(version, retry_record.encode(info)[:-4] + more + bytes(4))
    with pytest.raises(
        FailedPrecondition, match=f"version {version}, and this client reads versions up to 1: "
    ):
        retry_record.decode(newer)
    headers: list[Header] = [(RETRY_HEADER, newer)]
    with pytest.raises(
        FailedPrecondition, match=f"retry topic of 'orders', partition 3: .* version {version}"
    ):
        retry_record.read(Record(headers), "orders", info.topic_id, 3)
    scan = retry_record.Scan(info.topic_id, info.partition)
    assert scan.read(headers) is None
    assert scan.follower(headers) == -1


HEADERS = st.lists(
    st.tuples(st.text("abc-", min_size=1, max_size=5), st.none() | st.binary(max_size=8)), max_size=6
)


@given(HEADERS, INFOS, INFOS)
def test_the_users_headers_stay_and_ours_is_there_once(
    headers: list[Header], first: RetryInfo, second: RetryInfo
) -> None:
    once = retry_record.retry_headers(headers, first)
    twice = retry_record.retry_headers(once, second)
    assert [header for header in twice if header[0] != RETRY_HEADER] == headers
    found = retry_record.read(Record(twice), "orders", second.topic_id, second.partition)
    assert isinstance(found, RetryRecord)
    assert found.info == second
    assert (found.topic(), found.partition(), found.offset()) == ("orders", second.partition, second.origin)
    assert (found.key(), found.value(), found.headers(), found.timestamp()) == (
        b"k",
        b"body",
        headers,
        (1, 1234),
    )
    assert (found.retry_offset, len(found)) == (7, 4)


def test_a_foreign_origin_is_broken_and_says_what_it_is() -> None:
    headers = retry_record.retry_headers(None, RetryInfo("other", 3, 5))
    found = retry_record.read(Record(headers), "orders", "mine", 3)
    assert isinstance(found, Broken)
    assert "'other'" in found.reason
    headers = retry_record.retry_headers(None, RetryInfo("mine", 4, 5))
    assert isinstance(retry_record.read(Record(headers), "orders", "mine", 3), Broken)


def test_no_header_or_two_are_broken() -> None:
    header: Header = (RETRY_HEADER, retry_record.encode(RetryInfo("mine", 3, 5)))
    some: list[list[Header] | None] = [None, [], [header, header]]
    for headers in some:
        assert isinstance(retry_record.read(Record(headers), "orders", "mine", 3), Broken)


@given(st.text(min_size=500, max_size=900))
def test_an_errors_text_is_cut_at_a_whole_character(text: str) -> None:
    found = retry_record.decode(retry_record.encode(RetryInfo("id", 0, 0, error=text)))
    assert isinstance(found, RetryInfo)
    assert len(found.error.encode()) <= ERROR_BYTES
    assert text.encode("utf-8", "replace").decode().startswith(found.error)


def test_numbers_that_outgrow_their_place_stay_at_the_largest() -> None:
    found = retry_record.decode(retry_record.encode(RetryInfo("id", 0, 0, attempt=10**6, crashes=10**6)))
    assert isinstance(found, RetryInfo)
    assert (found.attempt, found.crashes) == (0xFFFF, 0xFF)


def test_a_dead_letter_says_from_where_why_and_how_often() -> None:
    headers = retry_record.retry_headers(
        [("kind", b"created"), ("ps-dead-topic", b"old")], RetryInfo("id", 3, 5)
    )
    death = Death("orders", "billing", "attempts used up", "ValueError", "no such user " * 200, 1234)
    found = dict(retry_record.dead_headers(headers, RetryInfo("id", 3, 5, attempt=4, crashes=1), death))
    assert len(found.pop("ps-dead-error") or b"") <= ERROR_BYTES
    assert found == {
        "kind": b"created",
        "ps-id": b"orders:3:5",
        "ps-dead-topic": b"orders",
        "ps-dead-topic-id": b"id",
        "ps-dead-partition": b"3",
        "ps-dead-offset": b"5",
        "ps-dead-subscription": b"billing",
        "ps-dead-reason": b"attempts used up",
        "ps-dead-error-class": b"ValueError",
        "ps-dead-attempts": b"5",
        "ps-dead-crashes": b"1",
        "ps-dead-failed-since": b"0",
        "ps-dead-time": b"1234",
    }


def test_a_dead_letter_of_a_broken_record_keeps_all_of_it() -> None:
    headers: list[Header] = [("kind", b"created"), (RETRY_HEADER, b"rubbish")]
    found = retry_record.dead_headers(headers, Broken("damaged"), Death("orders", "billing", "damaged"))
    assert found[:2] == headers
    assert dict(found)["ps-dead-reason"] == b"damaged"


@given(HEADERS, INFOS, st.data())
def test_a_scan_sees_what_reading_sees_or_asks_to_look_closer(
    headers: list[Header], info: RetryInfo, data: st.DataObject
) -> None:
    scan = retry_record.Scan(info.topic_id, info.partition)
    stored = retry_record.retry_headers(headers, info)
    found = scan.read(stored)
    assert (found is None) == (info.why in NO_MESSAGES)
    assert found is None or found == (info.origin, info.attempt, info.crashes, info.due, info.why)
    assert retry_record.Scan(info.topic_id + "x", info.partition).read(stored) is None
    assert retry_record.Scan(info.topic_id, info.partition + 1).read(stored) is None
    assert scan.read([*stored, ("later", b"")]) is None
    assert scan.read([stored[-1], *stored]) is None
    assert scan.read(None) is None
    value = bytearray(stored[-1][1] or b"")
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    assert scan.read([(RETRY_HEADER, bytes(value))]) is None
