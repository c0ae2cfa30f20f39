"""Makes the parts of a report: one HTML file with plots as SVG, which loads nothing.

Rules
1. This module escapes text that others wrote (keys, errors), and the page forbids scripts: a message can't become
   markup.
2. Labels are HTML beside an SVG that stretches, so that they stay readable on a narrow screen.
3. Small values stay visible: a part that isn't zero has a width, and no share is rounded to 0 % or to 100 %.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .html_style import STYLE

__all__ = [
    "Markup",
    "Tick",
    "bars",
    "columns",
    "definitions",
    "duration",
    "folded",
    "lines",
    "page",
    "paragraph",
    "share",
    "stack",
    "table",
    "tiles",
]

#: The least width of a part, in percent of a bar: 2 of 6,000 must be visible.
LEAST = 1.0
#: The size of a plot in its own coordinates; the page stretches the plot.
_WIDTH, _HEIGHT = 1000, 300
#: The marks of a scale of durations, in seconds.
_DURATIONS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0, 864_000.0, 8_640_000.0)
#: The most characters of a text that stays on one line.
_SHORT = 40
_TAG = re.compile(r"<[^>]*>")
#: A mark on an axis: how far along it lies (0 to 1), and its text.
Tick = tuple[float, str]


class Markup(str):
    """Text that is HTML already, and isn't escaped again."""

    __slots__ = ()


def _html(value: Any) -> str:
    if isinstance(value, Markup):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return escape(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def paragraph(text: str, kind: str = "") -> Markup:
    """Makes one paragraph; `kind` is a class of the style sheet."""
    return Markup(f'<p class="{escape(kind)}">{_html(text)}</p>')


def definitions(pairs: Mapping[str, Any]) -> Markup:
    """Makes a list of names and their values, side by side."""
    body = "".join(
        f"<div><dt>{_html(name)}</dt><dd>{_html(value)}</dd></div>" for name, value in pairs.items()
    )
    return Markup(f"<dl>{body}</dl>")


def tiles(figures: Sequence[tuple[str, str, str, str]]) -> Markup:
    """Shows large figures: each a name, a figure, a text below it, and a kind ("", "ok", "warn" or "bad")."""
    body = "".join(
        f'<div class="tile {escape(kind)}"><span>{_html(name)}</span><b>{_html(figure)}</b>'
        f"<small>{_html(below)}</small></div>"
        for name, figure, below, kind in figures
    )
    return Markup(f'<div class="tiles">{body}</div>')


def table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    tight: Sequence[str] = (),
    anchor: str | None = None,
) -> Markup:
    """Shows rows as a table, which becomes a list of cards on a narrow screen.

    `tight` are columns whose texts stay on one line unless they are long. `anchor` is the column that holds the id of a
    row, to link to it; it isn't shown.
    """
    names = [name.replace("_", " ") for name in columns]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = []
    for row in rows:
        cells = "".join(
            _cell(row.get(column), name, tight=column in tight)
            for column, name in zip(columns, names, strict=True)
        )
        at = f' id="{escape(str(row[anchor]))}"' if anchor else ""
        body.append(f"<tr{at}>{cells}</tr>")
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>")


def _cell(value: Any, name: str, *, tight: bool) -> str:
    text = _html(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    short = tight and len(_TAG.sub("", text)) <= _SHORT
    kinds = [kind for kind, holds in (("n", number), ("tight", short), ("empty", not text)) if holds]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f'<td{kind} data-name="{escape(name)}"><span>{text}</span></td>'


def folded(summary: str, inner: str) -> Markup:
    """Makes a line that shows `inner` when the reader opens it."""
    return Markup(f"<details><summary>{_html(summary)}</summary>{inner}</details>")


def bars(values: Mapping[str, float], unit: str = "") -> Markup:
    """Draws a bar for each value, with the value beside it."""
    most = max(values.values(), default=0) or 1
    rows = []
    for name, value in values.items():
        width = max(100 * value / most, LEAST / 2 if value else 0)
        drawn = f'<rect class="s0" width="{width:.2f}" height="1"/>'
        said = f"{value:,.0f} {unit}".strip()
        rows.append(
            f'<span>{escape(name)}</span><svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">{drawn}'
            f'</svg><span class="n">{escape(said)}</span>'
        )
    return Markup(f'<div class="bars">{"".join(rows)}</div>')


def stack(parts: Mapping[str, int]) -> Markup:
    """Draws one bar of several parts, with a legend."""
    whole = sum(parts.values())
    widths = _widths(list(parts.values()), whole)
    drawn, x, told = [], 0.0, []
    for at, (name, count) in enumerate(parts.items()):
        title = escape(f"{name}: {count:,} ({share(count, whole)})")
        if count:
            drawn.append(
                f'<rect class="s{at}" x="{x:.2f}" width="{widths[at]:.2f}" height="1"><title>{title}</title></rect>'
            )
        x += widths[at]
        told.append(f'<span><i class="s{at}"></i>{title}</span>')
    said = escape(", ".join(f"{count:,} {name}" for name, count in parts.items()))
    return Markup(
        f'<svg class="stack" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{said}">'
        f'{"".join(drawn)}</svg><div class="legend">{"".join(told)}</div>'
    )


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


def columns(values: Sequence[float], titles: Sequence[str], across: Sequence[Tick], label: str) -> Markup:
    """Draws a column for each value, from left to right; `titles` are shown when the reader points at a column."""
    top, up = _scale(max(values, default=0))
    width = _WIDTH / max(1, len(values))
    drawn = []
    for at, (value, title) in enumerate(zip(values, titles, strict=True)):
        height = max(_HEIGHT * value / top, 3 if value else 0)
        drawn.append(
            f'<rect class="s0" x="{at * width:.2f}" y="{_HEIGHT - height:.2f}" width="{width * 0.92:.2f}" '
            f'height="{height:.2f}"><title>{escape(title)}</title></rect>'
        )
    return _plot(drawn, up, across, label)


def lines(series: Mapping[str, Sequence[float | None]], across: Sequence[Tick], label: str) -> Markup:
    """Draws a line for each series of durations, on a logarithmic scale; all series have the same positions."""
    there = [value for values in series.values() for value in values if value is not None and value > 0]
    low = max((each for each in _DURATIONS if each <= min(there, default=1)), default=_DURATIONS[0])
    high = min((each for each in _DURATIONS if each >= max(there, default=1)), default=_DURATIONS[-1])
    if low == high:
        low = _DURATIONS[max(0, _DURATIONS.index(low) - 1)]

    def height(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    up = [(height(each), duration(each)) for each in _DURATIONS if low <= each <= high]
    drawn, legend = [], []
    for at, (name, values) in enumerate(series.items()):
        points = []
        for place, value in enumerate(values):
            if value is None:
                points.append("")
                continue
            x = _WIDTH * (place + 0.5) / len(values)
            points.append(f"{x:.1f},{_HEIGHT * (1 - height(value)):.1f}")
        for run in " ".join(point or "|" for point in points).split("|"):
            if pieces := run.split():
                # A single point is drawn as a short line.
                shown = pieces if len(pieces) > 1 else [*pieces, pieces[0].replace(",", ".01,", 1)]
                drawn.append(f'<polyline class="l{at}" points="{" ".join(shown)}"/>')
        legend.append(f'<span><i class="l{at}"></i>{escape(name)}</span>')
    plot = _plot(drawn, up, across, label)
    return Markup(f'{plot}<div class="legend">{"".join(legend)}</div>')


def _scale(most: float) -> tuple[float, list[Tick]]:
    """Returns the end of an axis that begins at 0, and the axis's marks."""
    if most <= 0:
        return 1.0, [(0.0, "0"), (1.0, "1")]
    step = 10.0 ** math.floor(math.log10(most))
    steps = next((each * step for each in (0.2, 0.25, 0.5, 1, 2) if most / (each * step) <= 5), 2 * step)
    count = math.ceil(most / steps - 1e-9)
    return count * steps, [(at / count, _short(at * steps)) for at in range(count + 1)]


def _plot(drawn: Sequence[str], up: Sequence[Tick], across: Sequence[Tick], label: str) -> Markup:
    grid = "".join(
        f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for y in (_HEIGHT * (1 - at) for at, _ in up)
    )
    left = "".join(f'<span style="bottom:{100 * at:.1f}%">{escape(text)}</span>' for at, text in up)
    below = "".join(
        f'<span class="{"odd" if index % 2 else "even"}{" last" if at > 0.95 else ""}" '
        f'style="left:{100 * at:.1f}%">{escape(text)}</span>'
        for index, (at, text) in enumerate(across)
    )
    return Markup(
        f'<figure><figcaption>{escape(label)}</figcaption><div class="up">{left}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'{grid}{"".join(drawn)}</svg><div class="across">{below}</div></figure>'
    )


def page(title: str, verdict: str, sections: Sequence[tuple[str, str]], *, foot: str = "") -> str:
    """Makes a whole page: first `verdict` (the outcome, as markup), then `sections` (headings and markup)."""
    body = "".join(f"<section><h2>{escape(heading)}</h2>{markup}</section>" for heading, markup in sections)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><main><header><h1>{escape(title)}</h1>{verdict}'
        f"</header>{body}<footer>{_html(foot)}</footer></main></body></html>"
    )
