"""Durations and NAME=VALUE pairs."""

from __future__ import annotations

import click
import pytest

from kafka_pubsub.cli.types import DURATION, PAIR, duration_text, pairs


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("500ms", 0.5), ("1.5m", 90), ("2h", 7200), ("7d", 604_800), (" 5 m ", 300)],
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "abc", "-1", "5w", "1e3", "nan", "1.2.3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert(text, None, None)


def test_a_pair_may_have_an_empty_value_and_further_equal_signs() -> None:
    assert PAIR.convert("a=", None, None) == ("a", "")
    assert PAIR.convert("a=b=c", None, None) == ("a", "b=c")


@pytest.mark.parametrize("text", ["a", "=b", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not NAME=VALUE"):
        PAIR.convert(text, None, None)


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'a' was given twice"):
        pairs([("a", "1"), ("a", "2")], "--label")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (604_800, "7d"),
        (3600, "1h"),
        (90, "90s"),
        (120, "2m"),
        (10.0, "10s"),
        (0.5, "500ms"),
        (1.5, "1500ms"),
        (0, "0s"),
    ],
)
def test_a_duration_is_shown_as_it_is_typed(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
    assert DURATION.convert(text, None, None) == seconds
