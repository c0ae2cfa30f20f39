"""What a message in a lane says of its publisher and of the message before it."""

from __future__ import annotations

import pytest

from kafka_pubsub.core.lanes.headers import (
    AFTER_HEADER,
    SEQUENCE_HEADER,
    after_header,
    read_after,
    read_sequence,
    sequence_header,
)
from kafka_pubsub.model import Position


def test_what_is_written_is_read_back() -> None:
    assert sequence_header("a1b2", 17) == (SEQUENCE_HEADER, b"1.a1b2.17")
    assert read_sequence(sequence_header("a1b2", 17)[1]) == ("a1b2", 17)
    place = Position("orders.eu.lane.p7", 3, 2**60)
    assert after_header(place) == (AFTER_HEADER, b"1.3.%d.orders.eu.lane.p7" % 2**60)
    assert read_after(after_header(place)[1]) == place


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"1",
        b"1.",
        b"2.a1b2.17",
        b"1.a1b2",
        b"1.a1b2.",
        b"1..17",
        b"1.a1b2.-1",
        b"1.a1b2.x",
        b"\xff",
    ],
)
def test_another_number_says_nothing(value: bytes | None) -> None:
    assert read_sequence(value) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"2.0.1.jobs",
        b"1.0.1",
        b"1.0.1.",
        b"1.x.1.jobs",
        b"1.0.x.jobs",
        b"1.0.-1.jobs",
        b"1..1.jobs",
    ],
)
def test_another_place_says_nothing(value: bytes | None) -> None:
    assert read_after(value) is None
