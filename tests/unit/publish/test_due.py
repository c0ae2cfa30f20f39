"""`delay` and `deliver_at`: what they mean, to the millisecond, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kafka_pubsub.delays.publisher import check_longest
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.publish.due import Due, parse_due

#: 2023-11-14T22:13:20Z.
NOW = 1_700_000_000.0
THEN = datetime.fromtimestamp(NOW, UTC)


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (1, 1000),
        (0.1, 100),
        (0.57, 570),
        (0.0001, 1),
        (1.0001, 1001),
        (timedelta(minutes=10), 600_000),
        (timedelta(microseconds=1), 1),
        (2**28 - 1, (2**28 - 1) * 1000),
    ],
)
def test_a_delay_counts_from_when_the_message_came_in(delay: object, milliseconds: int) -> None:
    assert parse_due(delay, None, NOW) == Due(None, milliseconds, milliseconds)


@pytest.mark.parametrize("delay", [0, 0.0, -0.0, timedelta(0)])
def test_a_delay_of_zero_is_now(delay: object) -> None:
    assert parse_due(delay, None, NOW) is None


@pytest.mark.parametrize("ago", [timedelta(0), timedelta(microseconds=1), timedelta(days=9000)])
def test_a_time_that_has_passed_is_now(ago: timedelta) -> None:
    assert parse_due(None, THEN - ago, NOW) is None


def test_a_time_is_the_same_in_every_time_zone_and_rounded_up() -> None:
    due = Due(1_700_000_060_001, None, 60_001)
    time = THEN + timedelta(minutes=1, microseconds=1)
    assert parse_due(None, time, NOW) == due
    assert parse_due(None, time.astimezone(timezone(timedelta(hours=-9, minutes=-30))), NOW) == due


@pytest.mark.parametrize(
    ("delay", "deliver_at", "said"),
    [
        (-1, None, "delay: must not be negative"),
        (timedelta(seconds=-1), None, "delay: must not be negative"),
        (float("nan"), None, "delay: must be a finite number"),
        (float("inf"), None, "delay: must be a finite number"),
        (1e300, None, "delay: .* more than a date can hold"),
        ("10m", None, "delay: must be seconds or a timedelta, not str"),
        (True, None, "delay: must be seconds or a timedelta, not bool"),
        (None, datetime(2030, 1, 1), "deliver_at: 2030-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        (None, 1_700_000_000, "deliver_at: must be a datetime, not int"),
        (None, "10m", "deliver_at: must be a datetime, not str; how long to wait goes into delay"),
        (None, timedelta(minutes=10), "deliver_at: .* not timedelta; how long to wait goes into delay"),
        (1, THEN, "give one of them"),
    ],
)
def test_anything_else_is_refused_by_name(delay: object, deliver_at: object, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_due(delay, deliver_at, NOW)


def test_beyond_the_tiers_is_refused_with_how_far_they_go() -> None:
    check_longest(Due(None, 4_095_000, 4_095_000), 12)
    with pytest.raises(
        InvalidArgument, match=r"delay: 1:08:15.001000 is longer than the 1:08:15 \(4095 s\) .*12"
    ):
        check_longest(Due(None, 4_095_001, 4_095_001), 12)
    with pytest.raises(InvalidArgument, match="deliver_at: 9000 days"):
        check_longest(Due(1, None, 9000 * 86_400_000), 28)
