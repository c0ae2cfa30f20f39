"""Histories as files: their heads, a common axis of time, and their events in a single order.

Theory. Files of a host share a monotonic clock, so their events can be put in a single order without a doubt. Hosts are
joined by wall time, which may be wrong by the skew. There an ownership waits for the events that it must have seen: the
commit that it reads, and the ends of earlier ownerships. So the clocks decide only where causes don't.

Rules
1. A file that was killed ends in zeros or in half a line: both are cut off. Anything else that isn't an event is told.
2. Lines are parsed some thousands at a time, never a file at a time: memory doesn't grow with the history.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_pubsub.history.history import FORMAT

__all__ = ["Event", "History", "NotAHistory", "Order", "head_of", "open_all", "read"]

Event = dict[str, Any]
#: Is told of a line that isn't an event: which line, and why.
Complain = Callable[[int, str], None]

#: Bytes parsed at a time: parsed events take ten times as much memory, for each file.
CHUNK = 1 << 19
ROLES = ("subscriber", "publisher", "driver")


class NotAHistory(Exception):
    """A file that can't be checked at all."""


@dataclass(eq=False)
class History:
    """A single file."""

    number: int
    path: Path
    head: Event
    #: The difference of `t` to the common axis.
    shift: int = 0

    @property
    def name(self) -> str:
        """The name in a report."""
        return self.path.name

    @property
    def host(self) -> str:
        return str(self.head["host"])

    @property
    def pid(self) -> int:
        return int(self.head["pid"])

    @property
    def role(self) -> str:
        return str(self.head["role"])


def open_all(paths: Sequence[Path]) -> list[History]:
    """Reads the heads, and puts all clocks on the same axis."""
    histories = [History(number, path, head_of(path)) for number, path in enumerate(paths)]
    for field in ("topic", "subscription"):
        told = {each.head[field] for each in histories if each.role == "subscriber"}
        if field == "topic":
            told |= {each.head[field] for each in histories}
        if len(told) > 1:
            raise NotAHistory(f"histories of several {field}s: {sorted(told)}; check one at a time")
    first: dict[str, History] = {}
    for each in histories:
        known = first.setdefault(each.host, each)
        if each.head["t"] < known.head["t"]:
            first[each.host] = each
    for each in histories:
        head = first[each.host].head
        each.shift = head["wall"] - head["t"]
    return histories


def head_of(path: Path) -> Event:
    """A file's first line: who wrote it."""
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    try:
        head: Event = json.loads(line)
        ok = head["event"] == "open" and head["role"] in ROLES
        ok = ok and all(isinstance(head[field], int) for field in ("t", "wall", "pid", "process", "format"))
        ok = ok and all(field in head for field in ("host", "topic", "subscription", "ordered"))
    except (ValueError, KeyError, TypeError):
        ok = False
    if not ok:
        raise NotAHistory(f"{path}: the first line isn't the head of a history")
    if head["format"] != FORMAT:
        raise NotAHistory(f"{path}: format {head['format']}, this checker knows {FORMAT}")
    return head


def read(
    path: Path, unwanted: tuple[bytes, ...], complain: Complain, only: Callable[[bytes], bool] | None = None
) -> Iterator[tuple[int, Event]]:
    """Events with the numbers of their lines, without lines that begin with something `unwanted`."""
    number = 1
    with path.open("rb") as file:
        while lines := file.readlines(CHUNK):
            count = len(lines)
            ended = _cut(lines)
            numbers: Sequence[int] = range(number, number + len(lines))
            kept = [
                (at, line)
                for at, line in zip(numbers, lines, strict=True)
                if line != b"\n" and not line.startswith(unwanted) and (only is None or only(line))
            ]
            yield from _parsed(kept, complain)
            if ended:
                return
            number += count


def _cut(lines: list[bytes]) -> bool:
    """Cuts off the part of a line that a killed process left behind; returns whether there was such a part."""
    for at, line in enumerate(lines):
        if b"\0" in line or not line.endswith(b"\n"):
            del lines[at:]
            return True
    return False


def _parsed(lines: list[tuple[int, bytes]], complain: Complain) -> Iterable[tuple[int, Event]]:
    try:  # a single call for all: half the time, and a single copy of each field's name
        events = json.loads(b"[" + b",".join([line for _, line in lines]) + b"]")
        if len(events) == len(lines) and all(type(event) is dict for event in events):
            return zip([at for at, _ in lines], events, strict=True)
    except ValueError:
        pass
    return _one_by_one(lines, complain)


def _one_by_one(lines: list[tuple[int, bytes]], complain: Complain) -> Iterator[tuple[int, Event]]:
    for at, line in lines:
        try:
            event = json.loads(line)
        except ValueError as error:
            complain(at, f"not JSON: {error}")
            continue
        if isinstance(event, dict):
            yield at, event
        else:
            complain(at, f"not an event: {event!r}")


class _Cursor:
    """Where a file has been read to."""

    def __init__(self, history: History, events: Iterator[tuple[int, Event]]) -> None:
        self.history = history
        self._events = events
        self.line = 0
        self.event: Event = {}
        self.time = 0

    def next(self) -> bool:
        found = next(self._events, None)
        if found is None:
            return False
        self.line, self.event = found
        try:
            # never backwards: threads take the time before they take their turn in the file
            self.time = max(self.time, self.event["t"] + self.history.shift)
        except (KeyError, TypeError):
            self.event = {"event": "?", "was": self.event}
        return True


Step = tuple[History, int, Event, int]


class Order:
    """All events in a single order: file, line, event, time.

    An assignment for which `wait` speaks lets the others go first; `through` is told of a file that is at its end.
    """

    def __init__(
        self,
        files: Sequence[tuple[History, Iterator[tuple[int, Event]]]],
        wait: Callable[[History, Event, int], int],
        through: Callable[[History], None],
        skew: int,
    ) -> None:
        self._wait, self._through = wait, through
        self._patience = 2 * skew
        self._cursors = [_Cursor(history, events) for history, events in files]
        self._held: list[tuple[int, int]] = []
        begun = [index for index in range(len(files)) if self._step(index)]
        self._heap = [(self._cursors[index].time, index) for index in begun]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Step]:
        heap, held = self._heap, self._held
        while heap or held:
            # Held for longer than clocks can be wrong, or by nobody who could still go on: what an assignment waits
            # for isn't to come, or two wait for each other.
            if held and (not heap or heap[0][0] > min(held)[0] + self._patience):
                least = min(held, key=lambda entry: (self._reason(entry), entry))
                held.remove(least)
                yield from self._run(least[1], forced=True)
            else:
                yield from self._run(heapq.heappop(heap)[1], forced=False)
            if held:
                self._let_go()

    def _step(self, index: int) -> bool:
        if self._cursors[index].next():
            return True
        self._through(self._cursors[index].history)
        return False

    def _run(self, index: int, *, forced: bool) -> Iterator[Step]:
        """A file, for as long as it is the file's turn."""
        cursor = self._cursors[index]
        until = self._heap[0][0] if self._heap else None
        while True:
            event = cursor.event
            if event["event"] == "assign" and not forced and self._wait(cursor.history, event, cursor.time):
                self._held.append((cursor.time, index))
                return
            forced = False
            yield cursor.history, cursor.line, event, cursor.time
            if not self._step(index):
                return
            if self._held or (until is not None and cursor.time > until):
                heapq.heappush(self._heap, (cursor.time, index))
                return

    def _reason(self, entry: tuple[int, int]) -> int:
        cursor = self._cursors[entry[1]]
        return self._wait(cursor.history, cursor.event, cursor.time)

    def _let_go(self) -> None:
        for entry in [entry for entry in self._held if not self._reason(entry)]:
            self._held.remove(entry)
            heapq.heappush(self._heap, entry)
