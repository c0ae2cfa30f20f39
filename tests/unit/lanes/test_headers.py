"""The header of a message in a lane: its publisher and the messages before."""

from __future__ import annotations

import pytest

from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes.headers import (
    AFTER_HEADER,
    SEQUENCE_HEADER,
    Name,
    Sent,
    after_header,
    read_lane_headers,
    sequence_header,
)

P7, T0 = Lane(7, True), Lane(0, False)
EARLIER, OTHER = Name(16, 2**60, "4sQ-_x"), Name(3, 0)


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        (Sent("a1b2", 17), b"2.a1b2.17"),
        (Sent("a1b2", 17, EARLIER), b"2.a1b2.17.16.%d.4sQ-_x" % 2**60),
        (Sent("a1b2", 17, OTHER), b"2.a1b2.17.3.0."),
    ],
)
def test_a_number_is_read_back(sent: Sent, value: bytes) -> None:
    assert sequence_header(sent) == (SEQUENCE_HEADER, value)
    assert read_lane_headers([("x", b""), sequence_header(sent)]) == (sent, {})


def test_names_are_read_back() -> None:
    names = {P7: EARLIER, T0: OTHER}
    header = after_header(names)
    assert header == (AFTER_HEADER, b"2.p7.16.%d.4sQ-_x;t0.3.0." % 2**60)
    assert read_lane_headers([sequence_header(Sent("a", 18)), header]) == (Sent("a", 18), names)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"2",
        b"2.",
        b"1.a.17",
        b"3.a.17",
        b"2.a",
        b"2.a.",
        b"2..17",
        b"2.a.-1",
        b"2.a.x",
        b"2.a.1.2",
        b"\xff",
    ],
)
def test_another_number_says_nothing(value: bytes | None) -> None:
    assert read_lane_headers([(SEQUENCE_HEADER, value)]) == (None, {})


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"2",
        b"2.",
        b"1.p7.1.2.x",
        b"3.p7.1.2.x",
        b"2.q7.1.2.x",
        b"2.p.1.2.x",
        b"2.p7.1.2",
        b"2.p7.-1.2.x",
    ],
)
def test_another_name_says_nothing(value: bytes | None) -> None:
    assert read_lane_headers([(AFTER_HEADER, value)]) == (None, {})
    assert read_lane_headers(None) == (None, {})
