"""What a round's histories have to show, as far as handlers, publishers and the dead-letter topic can show it.

Theory: offsets name messages, and a key's offsets are in the order in which it was published, so the order of first
deliveries can be judged from `deliver` and `stored` alone. All processes are of one machine and so of one monotonic
clock. A long round has millions of events, so each history is walked through once and a message is a number. This sees
nothing of assignments and commits; `tests/checker` does (`prove`).

What `judge` finds
- lost: stored, and neither acked nor a dead letter
- order: first delivered before every earlier message of its key was acked or buried
- overlap: two handlers of one key at once in one process
- damaged: delivered with another key, body or attributes than published
- foreign: delivered and never published
- buried: a dead letter that was no poison, that isn't the message it says it was, or that came twice
- digested: poison that was acked, or that isn't among the dead letters
- stalled: a partition stood still although messages waited in it
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.checker.check import check
from tests.faults.morgue import DeadLetter
from tests.faults.progress import place_of

__all__ = ["Verdict", "histories", "judge", "prove"]

#: What the checker can say of histories in which nobody tells of assignments.
WITHOUT_ASSIGNMENTS = frozenset({"publish_order", "vanished", "malformed"})

#: Findings of a kind that are listed; the rest is counted.
LISTED = 5
FOREVER = 1 << 62
Event = dict[str, Any]


@dataclass
class Verdict:
    """`problems` is empty when all is well; `counts` says how much there was to judge."""

    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    #: Seconds that a partition stood still at most.
    stall: float = 0.0


class _Sent(NamedTuple):
    key: str | None
    sha: str
    poison: bool


class _Life:
    """What became of one message, in nanoseconds of the machine's clock."""

    __slots__ = ("begun", "deliveries", "earlier", "ended", "finished", "sent", "sha", "stored")

    def __init__(self) -> None:
        self.sent: _Sent | None = None
        self.sha = ""
        #: When its publisher knew of it; 0: never, or it knew of none.
        self.stored = 0
        self.begun = FOREVER
        #: Acked, or given up as a dead letter.
        self.finished = FOREVER
        #: When its last handler ended.
        self.ended = 0
        self.deliveries = 0
        #: The message before it of its key.
        self.earlier: int | None = None


def histories(folder: Path) -> dict[str, Iterable[Event]]:
    """The events of each history in the folder, by its name; a line that SIGKILL caught is left out."""
    return {path.stem: _Told(path) for path in sorted(folder.glob("*.jsonl"))}


class _Told:
    """A history's events, read anew at each walk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[Event]:
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or line.startswith(b"\0"):
                    return
                if line != b"\n":
                    yield json.loads(line)


def judge(
    told: Mapping[str, Iterable[Event]],
    dead: Sequence[DeadLetter] = (),
    *,
    is_poison: Callable[[str, int], bool] = lambda name, number: False,
    longest_stall: float = float("inf"),
) -> Verdict:
    """Holds the histories, and the dead letters, against each other."""
    return _Judge(told, dead, is_poison).verdict(longest_stall)


def prove(folder: Path) -> list[str]:
    """What the history checker finds, as far as the histories can prove it."""
    report = check(sorted(folder.glob("*.jsonl")), limit=LISTED)
    whole = any(event["event"] == "assign" for events in histories(folder).values() for event in events)
    found = [each for each in report.violations if whole or each.kind in WITHOUT_ASSIGNMENTS]
    return [f"{each.kind}: {each.text}" for each in found]


class _Judge:
    """One round's evidence."""

    def __init__(
        self,
        told: Mapping[str, Iterable[Event]],
        dead: Sequence[DeadLetter],
        is_poison: Callable[[str, int], bool],
    ) -> None:
        self._dead = dead
        self._lives: defaultdict[int, _Life] = defaultdict(_Life)
        #: Sent without an answer: perhaps stored.
        self._unsure: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._overlaps: list[str] = []
        self._damaged: set[int] = set()
        for name, events in told.items():
            self._publisher(name, events, is_poison)
        for name, events in told.items():
            self._consumer(name, events)

    def _publisher(self, name: str, events: Iterable[Event], is_poison: Callable[[str, int], bool]) -> None:
        sent: dict[int, _Sent] = {}
        for event in events:
            if event["event"] == "open" and event["role"] != "publisher":
                return
            if event["event"] == "send":
                number = event["n"]
                sent[number] = _Sent(event["key"], event["sha"], is_poison(name, number))
            elif event["event"] == "stored":
                life = self._lives[place_of(event["partition"], event["offset"])]
                life.sent, life.stored = sent.pop(event["n"]), event["t"]
        self._unsure.update(each.sha for each in sent.values())

    def _consumer(self, name: str, events: Iterable[Event]) -> None:
        running: defaultdict[str, list[int]] = defaultdict(list)
        for event in events:
            kind = event["event"]
            if kind not in {"deliver", "handler_end", "ack", "nack"}:
                continue
            place, time = place_of(event["partition"], event["offset"]), event["t"]
            life = self._lives[place]
            if kind == "deliver":
                self._delivered(name, place, life, event, running)
            elif kind == "ack":
                life.finished = min(life.finished, time)
            elif kind == "nack":
                self._counts["nacked"] += 1
            else:
                life.ended = max(life.ended, time)
                if life.sent is not None and life.sent.key is not None and place in running[life.sent.key]:
                    running[life.sent.key].remove(place)

    def _delivered(
        self, name: str, place: int, life: _Life, event: Event, running: dict[str, list[int]]
    ) -> None:
        self._counts["delivered"] += 1
        life.deliveries += 1
        life.begun = min(life.begun, event["t"])
        life.sha = event["sha"]
        if life.sent is None:
            return
        if life.sent.sha != event["sha"]:
            self._damaged.add(place)
        if life.sent.key is not None:
            mine = running[life.sent.key]
            if mine:
                self._overlaps.append(
                    f"{_named(place)} of key {life.sent.key} in {name} while {_named(mine[0])} runs"
                )
            mine.append(place)

    # The verdict

    def verdict(self, longest_stall: float) -> Verdict:
        verdict = Verdict()
        stored = {place: life for place, life in sorted(self._lives.items()) if life.sent is not None}
        buried = {place_of(*each.origin) for each in self._dead if min(each.origin) >= 0}
        acked = {place for place, life in stored.items() if life.finished < FOREVER}
        self._link(stored, buried)
        lost = (place for place in stored if place not in acked and place not in buried)
        _add(verdict, "lost", (self._told(place) for place in lost))
        _add(verdict, "order", self._out_of_order(stored))
        _add(verdict, "overlap", self._overlaps)
        _add(
            verdict,
            "damaged",
            (f"{self._told(place)} isn't what was published" for place in sorted(self._damaged)),
        )
        _add(verdict, "foreign", self._foreign())
        _add(verdict, "buried", self._wrongly_buried())
        _add(verdict, "digested", self._digested(stored, acked, buried))
        stalls = dict(self._stalls(stored))
        verdict.stall = max((seconds for seconds, _ in stalls.values()), default=0.0)
        _add(
            verdict,
            "stalled",
            (
                f"partition {number} stood still for {seconds:.1f} s until {at}"
                for number, (seconds, at) in stalls.items()
                if seconds > longest_stall
            ),
        )
        begun = sum(life.deliveries > 0 for life in self._lives.values())
        verdict.counts = {
            "stored": len(stored),
            "unsure": len(self._unsure),
            "delivered": self._counts["delivered"],
            "again": self._counts["delivered"] - begun,
            "acked": len(acked),
            "nacked": self._counts["nacked"],
            "buried": len(self._dead),
        }
        return verdict

    def _told(self, place: int) -> str:
        sent = self._lives[place].sent
        return f"{_named(place)} of key {None if sent is None else sent.key}"

    def _link(self, stored: Mapping[int, _Life], buried: set[int]) -> None:
        """Tells each message which one of its key came before it."""
        last: dict[str, int] = {}
        for place, life in stored.items():
            if life.finished == FOREVER and place in buried:
                life.finished = life.ended
            if life.sent is not None and life.sent.key is not None:
                life.earlier = last.get(life.sent.key)
                last[life.sent.key] = place

    def _out_of_order(self, stored: Mapping[int, _Life]) -> Iterator[str]:
        for place, life in stored.items():
            # The one before is enough: it was judged by the one before it.
            if life.begun == FOREVER or life.earlier is None:
                continue
            if stored[life.earlier].finished >= life.begun:
                yield f"{self._told(place)} was delivered before {_named(life.earlier)} was finished"

    def _foreign(self) -> Iterator[str]:
        for place, life in self._lives.items():
            if life.sent is None and life.deliveries and life.sha not in self._unsure:
                yield f"{_named(place)} was never published"

    def _wrongly_buried(self) -> Iterator[str]:
        seen: set[int] = set()
        for letter in self._dead:
            place = place_of(*letter.origin) if min(letter.origin) >= 0 else -1
            sent = self._lives[place].sent if place in self._lives else None
            told = f"{letter.origin} ({letter.reason}, after {letter.attempts} attempts)"
            if place in seen:
                yield f"{told} came twice"
            elif sent is not None and not sent.poison:
                yield f"{told} was no poison"
            elif sent is not None and sent.sha != letter.sha:
                yield f"{told} isn't what was published"
            elif sent is None and letter.sha not in self._unsure:
                yield f"{told} was never published"
            seen.add(place)

    def _digested(self, stored: Mapping[int, _Life], acked: set[int], buried: set[int]) -> Iterator[str]:
        for place, life in stored.items():
            if life.sent is None or not life.sent.poison:
                continue
            if place in acked:
                yield f"{self._told(place)} was poison and was acked"
            elif place not in buried:
                yield f"{self._told(place)} is poison and isn't among the dead letters"

    def _stalls(self, stored: Mapping[int, _Life]) -> Iterator[tuple[int, tuple[float, str]]]:
        """Of each partition the longest time without a first delivery while one was possible."""
        by_partition: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, life in stored.items():
            if life.begun < FOREVER:
                earlier = 0 if life.earlier is None else stored[life.earlier].finished
                by_partition[place >> 48].append((life.begun, max(life.stored, earlier)))
        for number, lives in sorted(by_partition.items()):
            lives.sort()
            waiting_since, longest = FOREVER, (0, 0)
            for nth in range(len(lives) - 1, -1, -1):
                begun, possible = lives[nth]
                waiting_since = min(waiting_since, possible)
                still = begun - max(waiting_since, lives[nth - 1][0] if nth else 0)
                longest = max(longest, (still, begun))
            yield number, (longest[0] / 1e9, f"t={longest[1]}")


def _named(place: int) -> tuple[int, int]:
    return place >> 48, place & ((1 << 48) - 1)


def _add(verdict: Verdict, kind: str, found: Iterable[str]) -> None:
    problems = list(found)
    verdict.problems += [f"{kind}: {each}" for each in problems[:LISTED]]
    if len(problems) > LISTED:
        verdict.problems.append(f"{kind}: {len(problems) - LISTED} more")
