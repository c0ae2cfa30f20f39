"""Draws a run of the demo: live in a terminal, as plain lines elsewhere.

Rules
1. All lines fit 80 columns and keep their places: numbers change, but don't move.
2. One cell for each key. Each state has a shape of its own, because not every terminal and reader has colours; colour
   only marks what is unusual: blocked is yellow, wrong is red.
3. The screen checks nothing; it shows the ledger's picture.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafka_pubsub.cli.demo.ledger import Comeback, Picture
from kafka_pubsub.cli.demo.run import Plan
from kafka_pubsub.cli.demo.story import user_name

__all__ = ["LiveScreen", "NoScreen", "PlainLines", "Screen", "draw"]

# A figure that changes ten times a second can still be read.
FRAMES_PER_SECOND = 10
PLAIN_INTERVAL_S = 1.0
# Throughput is the mean over this long: shorter jitters, longer lags.
RATE_WINDOW_S = 1.5
WIDTH = 76
CELL_ROWS = 6
FIGURE_WIDTH = 15
COMEBACK_ROWS = 4


class Screen(Protocol):
    """Shows pictures until it is left."""

    def show(self, picture: Picture) -> None: ...
    def __enter__(self) -> Screen: ...
    def __exit__(self, *_: object) -> None: ...


class Rates:
    """Throughput over the last moments; when all is done, over the whole run."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._samples: deque[tuple[float, int, int]] = deque()
        self._first: tuple[float, int, int] | None = None

    def add(self, now: float, picture: Picture) -> tuple[float, float]:
        """Adds a picture; returns the events published and finished per second."""
        sample = (now, picture.published, picture.finished)
        self._first = self._first or sample
        self._samples.append(sample)
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_WINDOW_S:
            self._samples.popleft()
        done = picture.finished >= self._messages
        then, published, finished = self._first if done else self._samples[0]
        passed = max(now - then, 1e-6)
        return (picture.published - published) / passed, (picture.finished - finished) / passed


def draw(
    picture: Picture, plan: Plan, rates: tuple[float, float], where: str, *, unicode: bool = True
) -> RenderableType:
    """Returns one frame."""
    parts: list[RenderableType] = [
        Text.assemble(("Ordered Pub/Sub on Apache Kafka", "bold"), ("  " + where, "dim")),
        "",
        _bars(picture, plan, rates),
        "",
        _keys(picture, plan, unicode),
        "",
        _figures(picture),
        "",
        _comebacks(picture.comebacks),
    ]
    return Padding(Group(*parts), (1, 2))


def _bars(picture: Picture, plan: Plan, rates: tuple[float, float]) -> Table:
    count_width = 2 * len(f"{plan.messages:,}") + 1
    rate_width = 9
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=9)
    table.add_column(width=WIDTH - 9 - count_width - rate_width - 3 * 2)
    table.add_column(width=count_width, justify="right", no_wrap=True)
    table.add_column(width=rate_width, justify="right", style="dim", no_wrap=True)
    rows = (("published", picture.published, rates[0]), ("consumed", picture.finished, rates[1]))
    for name, done, rate in rows:
        bar = ProgressBar(plan.messages, done, complete_style="cyan", finished_style="green")
        table.add_row(name, bar, f"{done:,}/{plan.messages:,}", f"{rate:,.0f}/s")
    return table


class _Cell(NamedTuple):
    symbol: str
    ascii: str
    style: str
    meaning: str


_HANDLED = _Cell("●", "o", "green", "handled")
_WAITING = _Cell("○", ":", "cyan", "waiting")
_BLOCKED = _Cell("◆", "#", "bold yellow", "nacked: its key waits")
_IDLE = _Cell("·", ".", "dim", "idle")


def _cell(key: str, picture: Picture) -> _Cell:
    if key in picture.blocked:
        return _BLOCKED
    if key in picture.in_flight:
        return _HANDLED
    return _WAITING if key in picture.busy else _IDLE


def _keys(picture: Picture, plan: Plan, unicode: bool) -> Text:
    gap = " " if plan.keys <= WIDTH // 2 * CELL_ROWS else ""
    per_row = WIDTH // 2 if gap else WIDTH
    shown = min(plan.keys, per_row * CELL_ROWS)
    text = Text()
    for number in range(shown):
        cell = _cell(user_name(number), picture)
        text.append(cell.symbol if unicode else cell.ascii, cell.style)
        text.append("\n" if (number + 1) % per_row == 0 or number + 1 == shown else gap)
    for cell in (_HANDLED, _WAITING, _BLOCKED, _IDLE):
        text.append(cell.symbol if unicode else cell.ascii, cell.style)
        text.append(f" {cell.meaning}   ", "dim")
    return text.append(f"{shown} of {plan.keys:,} keys" if shown < plan.keys else "", "dim")


def _figures(picture: Picture) -> Table:
    figures = (
        ("keys in flight", len(picture.in_flight), "bold"),
        ("keys blocked", len(picture.blocked), "yellow"),
        ("nacked", picture.nacks, "bold"),
        ("redelivered", picture.redelivered, "bold"),
        ("order violations", picture.violations, "bold red" if picture.violations else "bold green"),
    )
    table = Table.grid()
    for name, _, _ in figures:
        table.add_column(width=max(len(name) + 2, FIGURE_WIDTH), no_wrap=True)
    table.add_row(*(Text(f"{number:,}", style) for _, number, style in figures))
    table.add_row(*(Text(name, "dim") for name, _, _ in figures))
    return table


def _comebacks(comebacks: Sequence[Comeback]) -> Text:
    lines = [
        Text.assemble(f"{f'{each.key} #{each.sequence}':<18}", (_tell(each), "dim")) for each in comebacks
    ]
    lines += [Text() for _ in range(COMEBACK_ROWS - len(lines))]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _tell(comeback: Comeback) -> str:
    waited = f"nacked, back first after {comeback.waited:.2f} s"
    if not comeback.held_back:
        return waited
    return f"{waited}, {comeback.held_back} later one{'s' if comeback.held_back > 1 else ''} waited"


class LiveScreen:
    """A screen that redraws one frame in place, on a terminal."""

    def __init__(self, console: Console, plan: Plan, where: str) -> None:
        self._plan = plan
        self._where = where
        self._rates = Rates(plan.messages)
        self._unicode = "utf" in console.encoding.lower()
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def show(self, picture: Picture) -> None:
        """Draws the picture, and waits for the next frame's time."""
        rates = self._rates.add(time.monotonic(), picture)
        self._live.update(draw(picture, self._plan, rates, self._where, unicode=self._unicode), refresh=True)

    def __enter__(self) -> LiveScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class PlainLines:
    """A screen that writes a line a second, without a terminal."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._plan = plan
        self._rates = Rates(plan.messages)
        self._last = 0.0

    def show(self, picture: Picture) -> None:
        """Writes a line if the last one is old enough, and always for the last picture."""
        now = time.monotonic()
        rates = self._rates.add(now, picture)
        if now - self._last < PLAIN_INTERVAL_S and picture.finished < self._plan.messages:
            return
        self._last = now
        self._console.print(
            f"published {picture.published:,}/{self._plan.messages:,} ({rates[0]:,.0f}/s)  "
            f"consumed {picture.finished:,} ({rates[1]:,.0f}/s)  in flight {len(picture.in_flight)}  "
            f"blocked {len(picture.blocked)}  redelivered {picture.redelivered:,}  "
            f"violations {picture.violations}",
            highlight=False,
            soft_wrap=True,
        )

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None:
        return


class NoScreen:
    """Shows nothing (`--json`)."""

    def show(self, picture: Picture) -> None:
        """Does nothing."""

    def __enter__(self) -> NoScreen:
        return self

    def __exit__(self, *_: object) -> None:
        return
