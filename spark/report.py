"""An audit as a page: one file, plots drawn as SVG, nothing loaded from anywhere.

Rule: whatever others wrote (keys, texts of errors) is escaped; a message can't become markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["bars", "page", "stack", "table"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } th { color: #666; font-weight: 600; }
.ok { color: #176b37; } .bad { color: #a4161a; } svg { display: block; margin: .5rem 0 1.5rem; }
"""
_COLOURS = ("#2f6f9f", "#8fb8d4", "#e2a03f", "#a4161a")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as a table."""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(name)) for name in columns) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{escape('' if value is None else str(value))}</td>"
    return f'<td class="n">{value:,}</td>' if isinstance(value, int) else f'<td class="n">{value:,.3f}</td>'


def bars(values: Mapping[str, float], unit: str) -> str:
    """A bar for each value."""
    most = max(values.values(), default=0) or 1
    height, room = 22, 440
    parts = []
    for at, (name, value) in enumerate(values.items()):
        y, width = at * height, room * value / most
        parts.append(f'<text x="0" y="{y + 15}" font-size="13">{escape(name)}</text>')
        parts.append(f'<rect x="150" y="{y + 3}" width="{width:.1f}" height="16" fill="{_COLOURS[0]}"/>')
        parts.append(
            f'<text x="{156 + width:.1f}" y="{y + 15}" font-size="13">{value:,.0f} {escape(unit)}</text>'
        )
    return _svg(parts, len(values) * height)


def stack(rows: Mapping[str, Mapping[str, int]]) -> str:
    """For each row one bar of several parts, in proportion."""
    parts, height = [], 26
    names = list(next(iter(rows.values()), {}))
    for at, (name, shares) in enumerate(rows.items()):
        total, x = sum(shares.values()) or 1, 150.0
        parts.append(f'<text x="0" y="{at * height + 15}" font-size="13">{escape(name)}</text>')
        for colour, share in zip(_COLOURS, shares.values(), strict=False):
            width = 560 * share / total
            parts.append(
                f'<rect x="{x:.1f}" y="{at * height}" width="{width:.1f}" height="18" fill="{colour}">'
                f"<title>{share:,}</title></rect>"
            )
            x += width
    for at, name in enumerate(names):
        y = len(rows) * height
        parts.append(f'<rect x="{150 + at * 110}" y="{y}" width="12" height="12" fill="{_COLOURS[at]}"/>')
        parts.append(f'<text x="{168 + at * 110}" y="{y + 11}" font-size="13">{escape(name)}</text>')
    return _svg(parts, len(rows) * height + 20)


def _svg(parts: Sequence[str], height: int) -> str:
    return f'<svg viewBox="0 0 720 {height}" width="720" height="{height}" role="img">{"".join(parts)}</svg>'


def page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page; `sections` are headings and markup."""
    body = "".join(f"<h2>{escape(heading)}</h2>{markup}" for heading, markup in sections)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>"
