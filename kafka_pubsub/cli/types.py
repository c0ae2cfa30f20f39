"""Kinds of arguments: durations, moments, and NAME=VALUE pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

__all__ = [
    "DURATION",
    "MOMENT",
    "PAIR",
    "START",
    "MomentType",
    "ago",
    "duration_text",
    "pairs",
    "rough_duration",
]

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


class DurationType(click.ParamType[float]):
    """Seconds, or a number with its unit: 500ms, 30s, 5m, 2h, 7d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Converts text to seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(
                f"{value!r} is not a duration; write 30 (seconds), 500ms, 30s, 5m, 2h or 7d", param, ctx
            )
        return float(match[1]) * _UNITS[match[2]]


def duration_text(seconds: float) -> str:
    """Returns seconds in the largest unit that needs no fraction, which `DURATION` reads back."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0s"


def rough_duration(seconds: float) -> str:
    """Returns seconds in one unit, rounded."""
    unit = next((unit for unit in ("d", "h", "m") if seconds >= 2 * _UNITS[unit]), "s")
    return f"{seconds / _UNITS[unit]:.0f}{unit}"


class MomentType(click.ParamType[datetime]):
    """A time (2026-03-01T08:00, in this machine's zone unless it names one), or how long ago it was (2h).

    `durations`: the option that a duration belongs to, where a time that has passed makes no sense; then it is refused.
    """

    name = "moment"

    def __init__(self, durations: str | None = None) -> None:
        self._durations = durations

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Converts text to a time with a zone."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        match = _DURATION.fullmatch(text)
        if match is not None and match[2] and self._durations is not None:
            self.fail(f"{value!r} is a duration, not a time: give it to {self._durations}", param, ctx)
        try:
            if match is not None and match[2]:
                return datetime.now(UTC) - timedelta(seconds=float(match[1]) * _UNITS[match[2]])
            return datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError):
            others = ", or how long ago: 30m, 2h, 7d"
            if self._durations is not None:
                others = f"; {self._durations} takes how long to wait"
            self.fail(
                f"{value!r} is not a time; write 2026-03-01, 2026-03-01T08:00 or 2026-03-01T08:00Z{others}",
                param,
                ctx,
            )


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Returns how long ago a time was, or how soon it is, in one unit."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    text = rough_duration(abs(seconds))
    return f"{text} ago" if seconds >= 0 else f"in {text}"


class StartType(click.ParamType[Any]):
    """Where a subscription begins: earliest, latest, a time, or how long ago."""

    name = "start"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Converts text to what `create_subscription` takes."""
        text = str(value).strip()
        return text if text in ("earliest", "latest") else MOMENT.convert(value, param, ctx)


class PairType(click.ParamType[tuple[str, str]]):
    """NAME=VALUE; the value may be empty and may contain `=`."""

    name = "NAME=VALUE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Converts text to a pair."""
        if isinstance(value, tuple):
            return value
        name, separator, content = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, content


DURATION = DurationType()
MOMENT = MomentType()
START = StartType()
PAIR = PairType()


def pairs(given: Iterable[tuple[str, str]], option: str) -> dict[str, str]:
    """Returns the pairs as a mapping; refuses a name that is given twice."""
    result: dict[str, str] = {}
    for name, value in given:
        if name in result:
            raise click.BadParameter(f"{name!r} was given twice", param_hint=option)
        result[name] = value
    return result
