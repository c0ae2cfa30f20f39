"""What a round has to show besides what `tests/checker` proves of its histories.

Theory: the checker judges what every process told of itself: loss, order, overlaps, duplicates, commits. It doesn't
look into the dead-letter topic, and it doesn't ask how long anything took. Offsets name messages, and a key's offsets
are in the order in which it was published. A long round has millions of events, so each history is walked through
once, and a message is a number.

What `judge` finds
- lost: stored, and neither acked nor in the dead-letter topic
- dead-lettered: a dead letter that was no poison, that isn't the message it says it was, or that came twice
- digested: poison that was acked, or that isn't among the dead letters
- overtaken: a message of a key began before the one that was published before it, in whichever lane, was finished
- stalled: a partition stood still although messages could have been delivered
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.checker import judgement as checker
from tests.checker.settings import Settings
from tests.faults.dead_letter_reader import DeadLetter
from tests.faults.progress import place_of

__all__ = ["Event", "Judgement", "histories", "judge", "prove"]

#: Findings of a kind that are listed; the rest is counted.
LISTED = 5
#: Time granted where processes and brokers share a machine with other tests: threads wait for seconds there.
PATIENT = Settings(grace=2.0, max_lag=5.0)
FOREVER = 1 << 62
Event = dict[str, Any]


@dataclass
class Judgement:
    """`problems` is empty when all is well; `counts` says how much there was to judge."""

    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    #: Seconds that a partition stood still at most.
    stall: float = 0.0


class _Sent(NamedTuple):
    key: str | None
    sha: str
    #: Its place among all messages of all publishers; no two publishers share a key.
    number: tuple[int, int] = (0, 0)


class _Life:
    """What became of a message, in nanoseconds of the machine's clock."""

    __slots__ = ("begun", "deliveries", "earlier", "ended", "finished", "sent", "stored")

    def __init__(self) -> None:
        #: None: nobody knows that it was published.
        self.sent: _Sent | None = None
        #: When its publisher knew that it was stored.
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


def prove(folder: Path) -> Judgement:
    """What the history checker finds."""
    found = checker.judge(folder, PATIENT, limit=LISTED)
    return Judgement(found.problems, found.counts)


def judge(
    told: Iterable[Iterable[Event]],
    dead: Sequence[DeadLetter] = (),
    *,
    poison: Collection[str] = (),
    longest_stall: float = float("inf"),
) -> Judgement:
    """Holds the histories and the dead letters against each other; `poison`: the fingerprints of all poison."""
    return _Judge(told, dead, poison).judgement(longest_stall)


class _Judge:
    """A single round's evidence."""

    def __init__(
        self, told: Iterable[Iterable[Event]], dead: Sequence[DeadLetter], poison: Collection[str]
    ) -> None:
        self._dead = dead
        self._poison = poison
        self._lives: defaultdict[int, _Life] = defaultdict(_Life)
        #: Sent without an answer: perhaps stored.
        self._unsure: set[str] = set()
        self._counts: Counter[str] = Counter()
        for number, events in enumerate(told):
            self._walk(number, events)

    def _walk(self, publisher: int, events: Iterable[Event]) -> None:
        sent: dict[int, _Sent] = {}
        for event in events:
            kind = event["event"]
            if kind == "send":
                sent[event["n"]] = _Sent(event["key"], event["sha"], (publisher, event["n"]))
            elif kind in {"stored", "deliver", "handler_end", "ack", "nack"}:
                life = self._lives[place_of(event["partition"], event["offset"])]
                if kind == "stored":
                    life.sent, life.stored = sent.pop(event["n"]), event["t"]
                else:
                    self._received(kind, life, event["t"])
        self._unsure.update(each.sha for each in sent.values())

    def _received(self, kind: str, life: _Life, time: int) -> None:
        self._counts[kind] += 1
        if kind == "deliver":
            life.deliveries += 1
            life.begun = min(life.begun, time)
        elif kind == "ack":
            life.finished = min(life.finished, time)
        elif kind == "handler_end":
            life.ended = max(life.ended, time)

    # The judgement

    def judgement(self, longest_stall: float) -> Judgement:
        judgement = Judgement()
        stored = {place: life for place, life in sorted(self._lives.items()) if life.sent is not None}
        buried = {place_of(*each.origin) for each in self._dead if min(each.origin) >= 0}
        acked = {place for place, life in stored.items() if life.finished < FOREVER}
        lost = (place for place in stored if place not in acked and place not in buried)
        _add(judgement, "lost", map(self._named, lost))
        _add(judgement, "buried", self._wrongly_dead_lettered())
        _add(judgement, "digested", self._digested(stored, acked, buried))
        self._link(stored, buried)
        _add(judgement, "overtaken", self._overtaken(stored))
        stalls = list(self._stalls(stored))
        judgement.stall = max((seconds for _, seconds, _ in stalls), default=0.0)
        too_long = (each for each in stalls if each[1] > longest_stall)
        _add(
            judgement,
            "stalled",
            (f"partition {n}: nothing for {s:.1f} s until t={t}" for n, s, t in too_long),
        )
        begun = sum(life.deliveries > 0 for life in self._lives.values())
        judgement.counts = {
            "stored": len(stored),
            "unsure": len(self._unsure),
            "delivered": self._counts["deliver"],
            "again": self._counts["deliver"] - begun,
            "acked": len(acked),
            "nacked": self._counts["nack"],
            "buried": len(self._dead),
        }
        return judgement

    def _named(self, place: int) -> str:
        sent = self._lives[place].sent
        return f"{(place >> 48, place & ((1 << 48) - 1))} of key {None if sent is None else sent.key}"

    def _wrongly_dead_lettered(self) -> Iterator[str]:
        seen: set[tuple[int, int]] = set()
        for letter in self._dead:
            place = place_of(*letter.origin) if min(letter.origin) >= 0 else -1
            sent = self._lives[place].sent if place in self._lives else None
            told = f"{letter.origin} ({letter.reason}, after {letter.attempts} attempts)"
            if letter.origin in seen:
                yield f"{told} came twice"
            elif letter.sha not in self._poison:
                yield f"{told} was no poison"
            elif letter.sha not in (self._unsure if sent is None else {sent.sha}):
                yield f"{told} isn't what was published there"
            seen.add(letter.origin)

    def _digested(self, stored: Mapping[int, _Life], acked: set[int], buried: set[int]) -> Iterator[str]:
        for place, life in stored.items():
            if life.sent is None or life.sent.sha not in self._poison:
                continue
            if place in acked:
                yield f"{self._named(place)} was poison and was acked"
            elif place not in buried:
                yield f"{self._named(place)} is poison and isn't among the dead letters"

    def _link(self, stored: Mapping[int, _Life], buried: set[int]) -> None:
        """Tells each message which message of its key, in the same history, came before it.

        A message with `deliver_at` whose time has passed when it is sent goes straight home, in no order with others.
        """
        last: dict[tuple[int, str], int] = {}
        sent_of = {place: life.sent for place, life in stored.items() if life.sent is not None}
        for place, sent in sorted(sent_of.items(), key=lambda each: each[1].number):
            life = stored[place]
            if life.finished == FOREVER and place in buried:
                life.finished = life.ended
            if sent.key is not None:
                history = sent.number[0], sent.key
                life.earlier = last.get(history)
                last[history] = place

    def _overtaken(self, stored: Mapping[int, _Life]) -> Iterator[str]:
        for place, life in stored.items():
            if life.earlier is not None and life.begun < stored[life.earlier].finished < FOREVER:
                yield f"{self._named(place)} began before {self._named(life.earlier)} was finished"

    def _stalls(self, stored: Mapping[int, _Life]) -> Iterator[tuple[int, float, int]]:
        """Of each partition the longest time without a first delivery while one was possible, and its end."""
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
            yield number, longest[0] / 1e9, longest[1]


def _add(judgement: Judgement, kind: str, found: Iterable[str]) -> None:
    problems = list(found)
    judgement.problems += [f"{kind}: {each}" for each in problems[:LISTED]]
    if len(problems) > LISTED:
        judgement.problems.append(f"{kind}: {len(problems) - LISTED} more")
