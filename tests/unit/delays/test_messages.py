"""Records of ingest and of the tiers: those of ours, of other programs, and of a newer version."""

from __future__ import annotations

from zlib import crc32

import pytest

from kafka_pubsub.delays.layout import INGEST, tier_topic
from kafka_pubsub.delays.messages import others_of, read_ingest, read_tier, why_dead
from kafka_pubsub.delays.records import (
    CANCEL_HEADER,
    DELAY_HEADER,
    TICK_HEADER,
    VERSION,
    DelayCancel,
    DelayRequest,
    encode_cancel,
    encode_delayed,
    encode_request,
)
from kafka_pubsub.delays.values import Came, Tick
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.model import Header

REQUEST = encode_request(DelayRequest("orders#id", None, 500))
DELAYED = encode_delayed(("orders#id", 9000, 8000, 1, 7))
CANCEL = encode_cancel(DelayCancel(9000, 7, 8, 8000, 1))


def record(*headers: Header, topic: str = INGEST, stamped: bool = True) -> MemoryRecord:
    return MemoryRecord(topic, 2, 5, b"orders\0k", b"body", list(headers), 6000, stamped=stamped)


def newer(header: bytes) -> bytes:
    """The header as a later version of ours would seal it."""
    body = bytes([VERSION + 1]) + header[1:-4]
    return body + crc32(body).to_bytes(4, "big")


def test_ingest_has_messages_requests_and_ticks() -> None:
    found = read_ingest(record((DELAY_HEADER, REQUEST)))
    assert isinstance(found, Came)
    assert (found[:4], found.stamp) == ((5, "orders#id", None, 500), 6000)
    found = read_ingest(record((CANCEL_HEADER, CANCEL), stamped=False))
    assert isinstance(found, Came)
    assert (found.due, found.target, found.stamp) == (9000, 7, None)
    assert read_ingest(record(TICK_HEADER)) == Tick(5, 6000)


def test_a_tier_has_messages_and_requests_whose_rest_fits_below_it() -> None:
    message = read_tier(record((DELAY_HEADER, DELAYED), topic=tier_topic(1)), 1)
    request = read_tier(record((CANCEL_HEADER, CANCEL), topic=tier_topic(1)), 1)
    assert message is not None
    assert message[:6] == (8000, 7, 9000, 1, "orders#id", 5)
    assert request is not None
    assert (request[:4], request.target) == ((8000, 8, 9000, 1), 7)
    assert read_tier(record((DELAY_HEADER, DELAYED), topic=tier_topic(0)), 0) is None


@pytest.mark.parametrize("headers", [[], [("x", b"y")], [(DELAY_HEADER, b"junk")], [(DELAY_HEADER, None)]])
def test_a_record_of_another_program_is_nobodys_message_and_raises_nothing(headers: list[Header]) -> None:
    found = read_ingest(record(*headers))
    assert isinstance(found, Came)
    assert found.home is None
    assert read_tier(record(*headers, topic=tier_topic(1)), 1) is None
    assert DELAY_HEADER in why_dead(record(*headers))


@pytest.mark.parametrize("header", [(DELAY_HEADER, REQUEST), (CANCEL_HEADER, CANCEL)])
def test_a_newer_version_is_refused(header: tuple[str, bytes]) -> None:
    name, value = header
    with pytest.raises(FailedPrecondition, match=f"is of version {VERSION + 1}, and this router reads"):
        read_ingest(record((name, newer(value))))
    with pytest.raises(FailedPrecondition, match="update this process"):
        read_tier(record((name, newer(value)), topic=tier_topic(1)), 1)


def test_the_publishers_own_headers_are_kept_and_ours_is_not() -> None:
    mine: list[Header] = [("a", b"1"), ("b", None)]
    assert others_of(record((DELAY_HEADER, REQUEST), *mine)) == mine
    assert others_of(record(*mine, (DELAY_HEADER, REQUEST))) == mine
    assert others_of(record()) == []


def test_a_dead_letter_says_why() -> None:
    assert "wasn't written by kafka_pubsub" in why_dead(record())
    assert "longer than the tiers" in why_dead(record((DELAY_HEADER, REQUEST)))
    assert "can't be read" in why_dead(record((DELAY_HEADER, b"junk")))
