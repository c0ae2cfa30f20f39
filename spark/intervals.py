"""Parses spans of time as a person writes them: "10 seconds", "1 hour 30 minutes".

Rule: options are checked before Spark starts, so a span that can't be read gives an error of one line that names the
option.
"""

from __future__ import annotations

import re
from typing import Any

import click

__all__ = ["INTERVAL", "NEVER", "OR_NEVER", "seconds_of"]

NEVER = "never"
_SECONDS = {
    "millisecond": 0.001,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
}
_PART = re.compile(rf"(\d+(?:\.\d+)?) *({'|'.join(_SECONDS)})s?", re.IGNORECASE)


def seconds_of(text: str) -> float:
    """Returns the seconds of a span of time; `ValueError` if the text isn't one."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip(" ,"):
        raise ValueError(
            f"{text!r} isn't a span of time: write a number and a unit, e.g. '10 seconds' or '1 hour'"
        )
    return float(sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts))


class _Interval(click.ParamType[str | None]):
    """The type of an option for a span of time, kept as text; `never` becomes None where that is allowed."""

    name = "interval"

    def __init__(self, *, never: bool) -> None:
        self._never = never

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | None:
        """Returns the text if it can be parsed; fails otherwise."""
        if self._never and str(value).strip().lower() == NEVER:
            return None
        try:
            seconds_of(str(value))
        except ValueError as error:
            self.fail(str(error) + (" or 'never'" if self._never else ""), param, ctx)
        return str(value)


INTERVAL = _Interval(never=False)
OR_NEVER = _Interval(never=True)
