"""The output of commands: text for a person, or JSON.

Rules
1. Answers go to stdout, everything else (progress, notes, errors) to stderr; so a pipe carries answers only.
2. JSON is UTF-8, one value a line. Keys of a message that can't be text are base64 with a `*_encoding` marker.
3. The content of messages never reaches a terminal raw: control characters are shown escaped, so that a message
   can't move the cursor or change the title.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "JsonValue",
    "Output",
    "at_terminal",
    "counted",
    "printable",
    "shown_bytes",
    "stderr_console",
    "text_or_base64",
    "to_json",
]

JsonValue = Mapping[str, "JsonValue"] | Sequence["JsonValue"] | str | int | float | bool | None

#: Columns whose cells are copied, and therefore are never broken into lines; nor are numbers.
WHOLE = frozenset({"message_id", "place", "name", "topic", "subscription"})
#: The columns of a terminal that each column keeps, and the letters of words that aren't broken anywhere.
LEAST, SHORT = 4, 8

# A pipe has no width; rich would assume 80 columns and cut cells off.
PIPE_WIDTH = 10_000


def to_json(value: JsonValue) -> bytes:
    """Returns one line of JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    return text.encode("utf-8", "backslashreplace")


def text_or_base64(raw: bytes) -> tuple[str, bool]:
    """Returns the bytes as text if they are UTF-8, else in base64; the flag is True for base64."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii"), True


def shown_bytes(name: str, raw: bytes | None, marked: str = "") -> dict[str, JsonValue]:
    """Returns the bytes under their name; base64 gets a marker, which is named after `marked` if that is given."""
    if raw is None:
        return {name: None}
    text, is_base64 = text_or_base64(raw)
    return {name: text, f"{marked or name}_encoding": "base64"} if is_base64 else {name: text}


_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
# A tab is harmless.
_ESCAPES |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\t"}


def printable(raw: bytes | str) -> str:
    """Returns the text with control characters escaped, so that it is harmless to a terminal."""
    data = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPES)


def counted(number: int, thing: str) -> str:
    """Returns a number with the name of what it counts: "1 message", "1,000 messages"."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def stderr_console() -> Console:
    """Returns the console on which progress is drawn."""
    from rich.console import Console

    return Console(stderr=True)


@dataclass(frozen=True)
class Output:
    """A writer of a command's answers to stdout."""

    as_json: bool

    def line(self, data: bytes | str) -> None:
        """Writes a line and flushes it: a reader behind a pipe gets it now, and a closed pipe is noticed."""
        raw = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
        sys.stdout.buffer.write(raw + b"\n")
        sys.stdout.buffer.flush()

    def result(self, value: JsonValue, human: str) -> None:
        """Writes a command's answer: `value` as JSON, or the text `human`."""
        self.line(to_json(value) if self.as_json else human)

    def note(self, text: str) -> None:
        """Writes a remark for a person to stderr; nothing with `--json`."""
        if not self.as_json:
            click.secho(text, err=True, dim=True)

    def table(self, rows: Sequence[Mapping[str, JsonValue]], columns: Sequence[str], empty: str) -> None:
        """Writes rows as a table, or as a JSON array with all fields; `empty` is the text if there are no rows."""
        if self.as_json:
            self.line(to_json(list(rows)))
        elif rows:
            self._rich_table(rows, columns)
        else:
            self.note(empty)

    def details(self, value: Mapping[str, JsonValue]) -> None:
        """Writes one resource, with a line for each field."""
        if self.as_json:
            self.line(to_json(value))
            return
        shown = {name.replace("_", " "): _cell(item) for name, item in value.items()}
        width = max(map(len, shown))
        for name, text in shown.items():
            first, *others = text.split("\n")
            self.line(
                f"{click.style(name.ljust(width), dim=True) if at_terminal() else name.ljust(width)}  {first}"
            )
            for other in others:
                self.line(" " * (width + 2) + other)

    def _rich_table(self, rows: Sequence[Mapping[str, JsonValue]], columns: Sequence[str]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        cells = {name: [_cell(row.get(name)) for row in rows] for name in columns}
        numeric = {name for name in columns if all(isinstance(row.get(name), (int, float)) for row in rows)}
        least = {name: _least(name, cells[name], whole=name in WHOLE | numeric) for name in columns}
        wanted = {name: max(least[name], _longest([name, *cells[name]])) for name in columns}
        room = Console(file=sys.stdout).width if at_terminal() else PIPE_WIDTH
        gap = 2 if sum(least.values()) + 2 * len(columns) <= room else 1
        widths = _widths(least, wanted, room - gap * len(columns))
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
        for name in columns:
            justify: Literal["left", "right"] = "right" if name in numeric else "left"
            table.add_column(name.replace("_", " "), justify=justify, overflow="fold", width=widths[name])
        for row in zip(*cells.values(), strict=True):
            table.add_row(*map(Text, row))
        # Wider than the terminal, if the ids need it: it breaks its lines itself, and copies them as one.
        needed = sum(widths.values()) + gap * len(columns)
        Console(file=sys.stdout, width=max(room, needed)).print(table)


def _least(name: str, cells: Sequence[str], *, whole: bool) -> int:
    """Returns the columns of a terminal that a column keeps: for each of its short words, or its whole cells."""
    words = cells if whole else [word for cell in cells for word in cell.split() if len(word) <= SHORT]
    return max(LEAST, _longest([*name.split("_"), *words]))


def _widths(least: Mapping[str, int], wanted: Mapping[str, int], room: int) -> Mapping[str, int]:
    """Returns the widths of columns: those that lack most get what is left of the room."""
    widths = dict(least)
    for _ in range(min(room, sum(wanted.values())) - sum(least.values())):
        widths[max(widths, key=lambda name: wanted[name] - widths[name])] += 1
    return widths


def _longest(texts: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def at_terminal() -> bool:
    """Returns whether answers go to a terminal, not to a pipe or file."""
    return sys.stdout.isatty()


def _cell(value: JsonValue) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,g}"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return "\n".join(f"{printable(name)}={_cell(item)}" for name, item in value.items()) or "-"
    return "\n".join(_cell(item) for item in value) or "-"
