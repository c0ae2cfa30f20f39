"""Computes what the page of an audit draws: widths, heights, the marks of axes, and texts for spans of time.

Rule: small values stay visible. A part that isn't zero has a width, and no share is rounded to 0 % or to 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Tick", "bars", "columns", "duration", "lines", "share", "stack"]

#: The least width of a part, in percent of a bar: 2 of 6,000 must be visible.
LEAST = 1.0
#: The size of a plot in its own coordinates; the page stretches the plot.
_WIDTH, _HEIGHT = 1000, 300
#: The marks of a scale of durations, in seconds.
_DURATIONS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0)
#: A mark on an axis: how far along it lies (0 to 1), and its text.
Tick = tuple[float, str]


def bars(values: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Returns for each value its name, the value, and the width of its bar in percent."""
    most = max(values.values(), default=0) or 1
    return [
        (name, value, max(100 * value / most, LEAST / 2 if value else 0)) for name, value in values.items()
    ]


def stack(parts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns for each part of one bar where it lies, its width in percent (0: it isn't drawn), and its text."""
    whole = sum(parts.values())
    widths, x, found = _widths(list(parts.values()), whole), 0.0, []
    for at, (name, count) in enumerate(parts.items()):
        title = f"{name}: {count:,} ({share(count, whole)})"
        found.append({"at": at, "x": x, "width": widths[at], "title": title})
        x += widths[at]
    return found


def _widths(counts: Sequence[int], whole: int) -> list[float]:
    """Returns each part's percent of the bar; a part that isn't 0 gets at least `LEAST`, and the others give it up."""
    if not whole:
        return [0.0 for _ in counts]
    true = [100 * count / whole for count in counts]
    small = [0 < width < LEAST for width in true]
    spare = 100 - LEAST * sum(small)
    large = sum(width for width, is_small in zip(true, small, strict=True) if not is_small)
    return [
        LEAST if is_small else width * spare / large if large else 0.0
        for width, is_small in zip(true, small, strict=True)
    ]


def share(part: int, whole: int) -> str:
    """Writes a share in percent, with as many digits as are needed to differ from 0 % and 100 %."""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    for digits in range(4):
        text = f"{100 * part / whole:.{digits}f}"
        if 0 < float(text) < 100:
            return f"{text} %"
    return "less than 0.001 %" if part < whole / 2 else "more than 99.999 %"


def duration(seconds: float) -> str:
    """Writes a span of time in the unit that suits it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{_short(seconds / size)} {unit}"
    if seconds >= 1 or seconds <= 0:
        return f"{_short(max(0.0, seconds))} s"
    return f"{_short(seconds * 1000)} ms"


def _short(value: float) -> str:
    """Writes a number with three digits, without zeros at the end of its fraction."""
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def columns(
    values: Sequence[float], titles: Sequence[str], across: Sequence[Tick], label: str
) -> dict[str, Any]:
    """Returns a plot with a column for each value, from left to right; the page shows a title for each."""
    top, up = _scale(max(values, default=0))
    width = _WIDTH / max(1, len(values))
    drawn = [
        {
            "x": at * width,
            "width": width * 0.92,
            "height": max(_HEIGHT * value / top, 3 if value else 0),
            "title": title,
        }
        for at, (value, title) in enumerate(zip(values, titles, strict=True))
    ]
    return {"label": label, "up": up, "across": across, "columns": drawn, "lines": [], "names": []}


def lines(series: Mapping[str, Sequence[float | None]], across: Sequence[Tick], label: str) -> dict[str, Any]:
    """Returns a plot with a line for each series of durations, on a logarithmic scale, at the same positions."""
    there = [value for values in series.values() for value in values if value is not None and value > 0]
    low = max((each for each in _DURATIONS if each <= min(there, default=1)), default=_DURATIONS[0])
    high = min((each for each in _DURATIONS if each >= max(there, default=1)), default=_DURATIONS[-1])
    if low == high:
        low = _DURATIONS[max(0, _DURATIONS.index(low) - 1)]

    def height(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    up = [(height(each), duration(each)) for each in _DURATIONS if low <= each <= high]
    drawn = [(at, points) for at, values in enumerate(series.values()) for points in _points(values, height)]
    return {"label": label, "up": up, "across": across, "columns": [], "lines": drawn, "names": list(series)}


def _points(values: Sequence[float | None], height: Callable[[float], float]) -> list[str]:
    """Returns the points of each line; a value that is missing ends one line."""
    runs: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
            continue
        x = _WIDTH * (place + 0.5) / len(values)
        runs[-1].append(f"{x:.1f},{_HEIGHT * (1 - height(value)):.1f}")
    # A single point is drawn as a short line.
    return [" ".join(run if len(run) > 1 else [*run, run[0].replace(",", ".01,", 1)]) for run in runs if run]


def _scale(most: float) -> tuple[float, list[Tick]]:
    """Returns the end of an axis that begins at 0, and the axis's marks."""
    if most <= 0:
        return 1.0, [(0.0, "0"), (1.0, "1")]
    step = 10.0 ** math.floor(math.log10(most))
    steps = next((each * step for each in (0.2, 0.25, 0.5, 1, 2) if most / (each * step) <= 5), 2 * step)
    count = math.ceil(most / steps - 1e-9)
    return count * steps, [(at / count, _short(at * steps)) for at in range(count + 1)]
