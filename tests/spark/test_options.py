"""The options of jobs: each is explained; spans of time are read before Spark starts."""

from __future__ import annotations

import click
import pytest

from spark.intervals import INTERVAL, OR_NEVER, seconds_of
from spark.job import JOBS, find


@pytest.mark.parametrize("name", JOBS)
def test_every_option_of_a_job_is_explained(name: str) -> None:
    for each in find(name).parameters():
        assert isinstance(each, click.Option)
        said = each.help or ""
        assert len(said.split()) >= 10, f"{name} {each.opts[0]}: {said!r} doesn't explain it"
        assert said.endswith("."), f"{name} {each.opts[0]}: {said!r}"
        # What happens without it is said, unless it must be given or click shows the default itself.
        told = each.required or each.is_flag or each.show_default or "Default: " in said or "With --" in said
        assert told, f"{name} {each.opts[0]}: {said!r} doesn't say what holds without it"


def test_a_span_of_time() -> None:
    spans = {
        "10 seconds": 10,
        "1 hour 30 minutes": 5400,
        "500 MILLISECONDS": 0.5,
        "1.5 days": 129_600,
        "0 seconds": 0,
    }
    assert {text: seconds_of(text) for text in spans} == spans
    for wrong in ("", "soon", "10", "10 parsecs", "seconds", "10 seconds later", "-1 hour"):
        with pytest.raises(ValueError, match="isn't a span of time: write a number and a unit"):
            seconds_of(wrong)


def test_never_is_a_span_where_that_is_allowed() -> None:
    assert OR_NEVER.convert("Never", None, None) is None
    assert OR_NEVER.convert("1 day", None, None) == "1 day"
    with pytest.raises(click.BadParameter, match="isn't a span of time"):
        INTERVAL.convert("never", None, None)
