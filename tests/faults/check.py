"""What a round's histories have to show, as far as handlers and publishers can see it.

Theory: offsets name messages, and a key's offsets are in the order in which it was published, so the order of first
deliveries can be judged from `deliver` and `stored` alone. All processes are of one machine and so of one monotonic
clock. This sees nothing of assignments and commits. `tests/checker` does (`prove`), once the client tells its own
history; until then it has only the publishers', the driver's and the files themselves to judge.

What `judge` finds
- lost: stored, and never acked or dead-lettered
- order: first delivered before every earlier message of its key was acked or dead-lettered
- overlap: two handlers of one key at once in one process
- damaged: delivered with another key, body or attributes than published
- foreign: delivered and never published
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.checker.check import check

__all__ = ["Verdict", "judge", "prove", "read"]

#: What the checker can say of histories in which nobody tells of assignments.
WITHOUT_ASSIGNMENTS = frozenset({"publish_order", "vanished", "malformed"})

#: Findings of a kind that are listed; the rest is counted.
LISTED = 5
Event = dict[str, Any]
Place = tuple[int, int]


@dataclass
class Verdict:
    """`problems` is empty when all is well; `counts` says how much there was to judge."""

    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class _Sent:
    key: str | None
    sha: str


def read(folder: Path) -> dict[str, list[Event]]:
    """The events of each history in the folder, by its name; a line that SIGKILL caught is left out."""
    return {path.stem: list(_events(path.read_bytes())) for path in sorted(folder.glob("*.jsonl"))}


def _events(raw: bytes) -> Iterator[Event]:
    whole, _, _ = raw.rstrip(b"\0").rpartition(b"\n")
    for line in whole.split(b"\n"):
        if line:
            yield json.loads(line)


def judge(histories: dict[str, list[Event]]) -> Verdict:
    """Holds the histories against each other."""
    stored, pending = _published(histories.values())
    deliveries = _by_time(histories.values(), "deliver")
    finished = {
        _place(event): event["t"] for event in reversed(_by_time(histories.values(), "ack", "dead_letter"))
    }
    verdict = Verdict()
    _add(
        verdict,
        "lost",
        (f"{place} of key {sent.key}" for place, sent in stored.items() if place not in finished),
    )
    _add(verdict, "order", _out_of_order(stored, deliveries, finished))
    _add(
        verdict,
        "overlap",
        (each for name, events in histories.items() for each in _overlaps(name, events, stored)),
    )
    _add(verdict, "damaged", _damaged(stored, deliveries))
    _add(verdict, "foreign", _foreign(stored, pending, deliveries))
    verdict.counts = {
        "stored": len(stored),
        "unsure": len(pending),
        "delivered": len(deliveries),
        "again": len(deliveries) - len({_place(event) for event in deliveries}),
        "acked": len(finished),
        "nacked": len(_by_time(histories.values(), "nack")),
    }
    return verdict


def prove(folder: Path) -> list[str]:
    """What the history checker finds, as far as the histories can prove it."""
    report = check(sorted(folder.glob("*.jsonl")), limit=LISTED)
    whole = any(event["event"] == "assign" for events in read(folder).values() for event in events)
    found = [each for each in report.violations if whole or each.kind in WITHOUT_ASSIGNMENTS]
    return [f"{each.kind}: {each.text}" for each in found]


def _add(verdict: Verdict, kind: str, found: Iterable[str]) -> None:
    problems = list(found)
    verdict.problems += [f"{kind}: {each}" for each in problems[:LISTED]]
    if len(problems) > LISTED:
        verdict.problems.append(f"{kind}: {len(problems) - LISTED} more")


def _published(histories: Iterable[list[Event]]) -> tuple[dict[Place, _Sent], list[_Sent]]:
    """What is known to be stored, by place; and what was sent without such an answer."""
    stored: dict[Place, _Sent] = {}
    pending: list[_Sent] = []
    for events in histories:
        sent = {event["n"]: _Sent(event["key"], event["sha"]) for event in events if event["event"] == "send"}
        for event in events:
            if event["event"] == "stored":
                stored[_place(event)] = sent.pop(event["n"])
        pending += sent.values()
    return stored, pending


def _by_time(histories: Iterable[list[Event]], *kinds: str) -> list[Event]:
    return sorted(
        (event for events in histories for event in events if event["event"] in kinds),
        key=lambda event: int(event["t"]),
    )


def _place(event: Event) -> Place:
    return event["partition"], event["offset"]


def _out_of_order(
    stored: dict[Place, _Sent], deliveries: list[Event], finished: dict[Place, int]
) -> Iterator[str]:
    before: dict[Place, Place] = {}
    last: dict[str, Place] = {}
    for place, sent in sorted(stored.items()):
        if sent.key is not None:
            if sent.key in last:
                before[place] = last[sent.key]
            last[sent.key] = place
    seen: set[Place] = set()
    for event in deliveries:
        place = _place(event)
        if place in seen:
            continue
        seen.add(place)
        earlier = before.get(place)
        # The one before is enough: it was judged by the one before it.
        if earlier is not None and finished.get(earlier, event["t"]) >= event["t"]:
            yield f"{place} of key {stored[place].key} was delivered before {earlier} was finished"


def _overlaps(name: str, events: list[Event], stored: dict[Place, _Sent]) -> Iterator[str]:
    running: defaultdict[str, list[Place]] = defaultdict(list)
    for event in events:
        if event["event"] not in {"deliver", "handler_end"}:
            continue
        sent = stored.get(_place(event))
        if sent is None or sent.key is None:
            continue
        mine = running[sent.key]
        if event["event"] == "deliver":
            if mine:
                yield f"{_place(event)} of key {sent.key} in {name} while {mine[0]} runs"
            mine.append(_place(event))
        elif _place(event) in mine:
            mine.remove(_place(event))


def _damaged(stored: dict[Place, _Sent], deliveries: list[Event]) -> Iterator[str]:
    for event in deliveries:
        sent = stored.get(_place(event))
        if sent is not None and sent.sha != event["sha"]:
            yield f"{_place(event)} of key {sent.key} isn't what was published"


def _foreign(stored: dict[Place, _Sent], pending: list[_Sent], deliveries: list[Event]) -> Iterator[str]:
    unsure = {sent.sha for sent in pending}
    for place, event in {_place(event): event for event in deliveries}.items():
        if place not in stored and event["sha"] not in unsure:
            yield f"{place} was never published"
