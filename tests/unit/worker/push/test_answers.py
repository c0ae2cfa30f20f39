"""The meaning of an endpoint's answer for a message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kafka_pubsub.worker.push.answers import Answer, judge, retry_after
from kafka_pubsub.worker.push.pace import LONGEST_PAUSE

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


def answer(status: int, asked: str | None = None, location: str | None = None) -> Answer:
    given = {"retry-after": asked, "location": location}
    headers = {name: value for name, value in given.items() if value is not None}
    return judge(status, headers, (400, 422), NOW)


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_success_acks(status: int) -> None:
    assert answer(status).ok


@pytest.mark.parametrize("status", [100, 199, 300, 307, 401, 404, 408, 429, 500, 503, 599])
def test_anything_else_is_delivered_again(status: int) -> None:
    found = answer(status)
    assert not found.ok
    assert not found.is_dead
    assert str(status) in found.reason


def test_the_statuses_that_were_chosen_make_dead_letters() -> None:
    assert answer(422).is_dead
    assert not answer(413).is_dead


def test_a_redirect_says_where_it_leads() -> None:
    assert "https://new/" in answer(301, location="https://new/").reason
    assert "no place" in answer(301).reason


def test_only_a_busy_endpoint_is_given_a_pause() -> None:
    assert answer(503, "7").pause == 7
    assert answer(429, "7").pause == 7
    assert answer(500, "7").pause is None
    assert answer(503).pause is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 12 ", 12),
        ("99999999999999999999", LONGEST_PAUSE),
        ("Fri, 27 Nov 2026 12:00:30 GMT", 30),
        ("Fri, 27 Nov 2026 11:00:00 GMT", 0),
        ("Sat, 28 Nov 2026 12:00:00 GMT", LONGEST_PAUSE),
        ("-1", None),
        ("soon", None),
        ("²", None),
        ("", None),
    ],
)
def test_seconds_and_dates_are_read_and_have_a_limit(text: str, seconds: float | None) -> None:
    assert retry_after(text, NOW) == seconds
