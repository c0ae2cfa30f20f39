"""Delayed messages of a round: what their publishers wrote down, against what lies in the topic and its lanes.

Theory. A router brings a message home at its due time, which is that of `deliver_at`, or when it came in, if that was
later. Messages of a key come home in the order of (due, place in ingest). When one came in is known to lie before its
future resolved, so the order of two messages is certain unless the one that is due earlier was stored late. A message
goes by its fingerprint: after a lost answer no broker may say where a message is stored (its id ends in `unknown`).
A message that was due before it was sent went straight home; its id says so, and its publisher's history has it.

What `judge` finds
- lost: its future resolved, and it isn't at home
- doubled: at home twice
- unknown: at home, and nobody published it
- renamed: at home with another id than its future gave
- early: at home before its time
- disordered: at home before a message of its key that must come first
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from kafka_pubsub.delays.layout import INGEST

__all__ = ["ENDING", "AtHome", "Diary", "Published", "judge", "published", "unsure"]

#: Of the names of diaries.
ENDING = ".delayed"
#: Seconds: clocks are read to the millisecond.
CLOCK = 0.002


class Published(NamedTuple):
    """A message whose future resolved, at the time `stored`."""

    sha: str
    key: str
    due: float
    message_id: str
    stored: float

    @property
    def offset(self) -> str:
        """Where it came in, or `unknown`."""
        return self.message_id.rpartition(":")[2]


class AtHome(NamedTuple):
    """A record of a home partition; the sequence that they are in is the log's."""

    home: tuple[str, int]
    offset: int
    #: When it was stored, in seconds.
    time: float
    key: str
    message_id: str
    sha: str


class Diary:
    """What a single process published; what is written stays when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def sending(self, sha: str) -> None:
        """Writes down that the message is about to be published."""
        self._write({"sending": sha})

    def answered(self, sha: str, key: str, due: float, future: Future[str]) -> None:
        """Writes down the id of the message if it is stored."""
        if future.exception() is None:
            self._write(Published(sha, key, due, future.result(), time.time())._asdict())

    def _write(self, line: dict[str, object]) -> None:
        with self._lock:
            self._file.write(json.dumps(line).encode() + b"\n")


def published(folder: Path) -> list[Published]:
    """The messages of all diaries whose futures resolved, and that came in at the delays."""
    found = [Published(**line) for line in _lines(folder) if "sending" not in line]
    return [each for each in found if each.message_id.startswith(f"{INGEST}:")]


def unsure(folder: Path) -> set[str]:
    """The fingerprints of messages that may be stored."""
    lines = list(_lines(folder))
    sent = {line["sending"] for line in lines if "sending" in line}
    return sent - {line["sha"] for line in lines if "sha" in line}


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(f"*{ENDING}")):
        for line in path.read_bytes().split(b"\n"):
            if line.endswith(b"}"):
                yield json.loads(line)


def judge(sent: Sequence[Published], perhaps: Collection[str], found: Sequence[AtHome]) -> list[str]:
    """Returns the promises that were broken. `perhaps`: fingerprints of messages that may be stored."""
    known = {each.sha: each for each in sent}
    times = Counter(each.sha for each in found)
    problems = [f"lost: {each}" for each in sent if not times[each.sha]]
    problems += [f"doubled: {sha} is {count} times at home" for sha, count in times.items() if count > 1]
    by_key: defaultdict[tuple[tuple[str, int], str], list[Published]] = defaultdict(list)
    for each in found:
        message = known.get(each.sha)
        if message is None:
            problems += [] if each.sha in perhaps else [f"unknown: {each}"]
            continue
        if each.time < message.due - CLOCK:
            problems.append(f"early: {message} at {each.time}")
        if message.offset.isdecimal() and message.message_id != each.message_id:
            problems.append(f"renamed: {message} has the id {each.message_id} at home")
        by_key[each.home, each.key].append(message._replace(message_id=each.message_id))
    for messages in by_key.values():
        problems += _disordered(messages)
    return problems


def _disordered(messages: Sequence[Published]) -> Iterable[str]:
    """A single key's messages, as they lie at home."""
    for place, later in enumerate(messages):
        for earlier in messages[:place]:
            if _comes_first(later, earlier):
                yield f"disordered: {later} must come before {earlier}"


def _comes_first(one: Published, other: Published) -> bool:
    """Whether a single message must come home before the other one."""
    if int(one.offset) < int(other.offset):
        return one.due <= other.due
    return max(one.due, one.stored) < other.due - CLOCK
