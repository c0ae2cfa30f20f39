"""The findings of the checker: counts, and each violation with the events that show it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.checker.reading import Event, History, read

__all__ = ["KINDS", "Report", "Violation"]

KINDS = {
    "lost": "a stored message that no handler acked, nor was dead-lettered or parked",
    "order": "a message begins before an earlier one of its key is finished",
    "publish_order": "the log has a publisher's messages of a key in another order than they were sent in",
    "overlap": "two handlers of a key at a time, and nothing logged explains it",
    "duplicate": "delivered again without a logged cause",
    "after_ack": "delivered, moved or expired by an owner that knew it was finished",
    "after_durable": "delivered although an accepted commit had finished it",
    "durable_ack": "an ack was called durable that no accepted commit holds",
    "commit_early": "a commit calls finished what nobody has finished",
    "commit_back": "a commit forgets what an earlier one called finished, or goes back",
    "in_flight": "a second commit before the answer to the first",
    "state": "an owner began with a state that nobody wrote, or that is outdated",
    "fence": "the log accepted a commit of a former owner",
    "ownership": "a partition was assigned while another process owned it",
    "unowned": "something was begun or committed without owning the partition",
    "payload": "delivered with another key, body or attributes than published",
    "phantom": "delivered, but never sent",
    "attempt": "a redelivery doesn't count on",
    "early": "delivered before it was due",
    "rejected": "delivered again, or moved to be, although its callback had given it up",
    "relocation": "moved while a handler held it or from where it didn't lie, or delivered before the move was durable",
    "stray": "an ack or nack of a delivery that isn't open was accepted, or an end or answer without a beginning",
    "lag": "an ack that was not committed although there was time",
    "unsettled": "the last owner has closed in good order, and not everything was finished",
    "vanished": "a history without an end, of a process that nobody killed",
    "malformed": "a line that isn't an event",
}

#: Events of a violation that are printed; a message that is retried for an hour has thousands.
SHOWN = 40


@dataclass
class Violation:
    """A promise that was broken."""

    kind: str
    text: str
    #: File, line and event at which the violation was noticed; none if it was noticed at the end.
    where: tuple[str, int, Event] | None = None
    #: Messages concerned: partition and offset.
    about: Sequence[tuple[int, int]] = ()
    #: All events of the histories about these messages, in order of time.
    events: list[str] = field(default_factory=list)


@dataclass
class Report:
    """Counts, complete; violations up to a limit of each kind."""

    limit: int = 20
    files: int = 0
    events: int = 0
    messages: int = 0
    keys: int = 0
    deliveries: int = 0
    acks: int = 0
    in_doubt: int = 0
    """Sent without a report, and never seen again."""
    stored_twice: int = 0
    """Stored by the log once more than their publishers know, while it was in trouble."""
    redeliveries: Counter[str] = field(default_factory=Counter)
    """By cause."""
    overlaps: Counter[str] = field(default_factory=Counter)
    """Of handlers in different processes, by what explains them."""
    move_requests: int = 0
    dead_letters: int = 0
    rejected: int = 0
    """Deliveries whose callback gave the message up."""
    parked: int = 0
    commits: int = 0
    ownerships: int = 0
    worst_lag: float = 0.0
    """Seconds that the oldest ack waited for a commit, when its ownership ended."""
    counts: Counter[str] = field(default_factory=Counter)
    """Violations by kind."""
    violations: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all promises were kept."""
        return not self.counts

    def add(self, violation: Violation) -> None:
        """Counts a violation, and keeps it unless there are many of its kind."""
        self.counts[violation.kind] += 1
        if self.counts[violation.kind] <= self.limit:
            self.violations.append(violation)

    def figures(self) -> dict[str, int]:
        """How much there was to judge, by name."""
        return {
            "messages": self.messages,
            "keys": self.keys,
            "deliveries": self.deliveries,
            "acks": self.acks,
            "commits": self.commits,
            "ownerships": self.ownerships,
            "moves": self.move_requests,
            "dead_letters": self.dead_letters,
            "rejected": self.rejected,
            "parked": self.parked,
            "in_doubt": self.in_doubt,
            "stored_twice": self.stored_twice,
            "redeliveries": self.redeliveries.total(),
            **{f"redelivered_{cause.replace(' ', '_')}": count for cause, count in self.redeliveries.items()},
            **{f"overlap_{why.replace(' ', '_')}": count for why, count in self.overlaps.items()},
            "violations": self.counts.total(),
        }

    def summary(self) -> str:
        """For people."""
        lines = [
            f"{self.files} files, {self.events} events; {self.messages} messages on {self.keys} keys, "
            f"{self.ownerships} ownerships",
            f"{self.deliveries} deliveries, {self.acks} acks, {self.commits} commits, {self.move_requests} moves, "
            f"{self.dead_letters} dead letters, {self.rejected} rejected, {self.parked} parked, "
            f"{self.in_doubt} sent in doubt, "
            f"{self.stored_twice} stored twice",
            f"redeliveries by cause: {_counted(self.redeliveries)}",
            f"overlaps explained by: {_counted(self.overlaps)}",
            f"an ack waited for its commit at most {self.worst_lag:.3f} s when its ownership ended",
        ]
        for violation in self.violations:
            lines += ["", f"{violation.kind.upper()}: {violation.text}"]
            if violation.where is not None:
                name, line, event = violation.where
                lines.append(f"  noticed at {name}:{line} {json.dumps(event)}")
            lines += [f"  {text}" for text in violation.events]
        lines.append("")
        for kind, count in sorted(self.counts.items()):
            lines.append(f"{count:8} {kind}: {KINDS[kind]}")
        lines.append("OK" if self.ok else f"VIOLATED: {sum(self.counts.values())}")
        return "\n".join(lines)

    def gather(self, histories: Sequence[History]) -> None:
        """Reads the histories once more, for the events of the violations' messages."""
        wanted: dict[tuple[int, int], list[Violation]] = {}
        for violation in self.violations:
            for message in violation.about:
                wanted.setdefault(message, []).append(violation)
        if not wanted:
            return
        found: dict[int, list[tuple[int, str]]] = {}
        for history in histories:
            for line, event in read(
                history.path, (b'{"event":"commit"', b'{"event":"send"'), lambda *_: None
            ):
                for message in _about(event):
                    for violation in wanted.get(message, ()):
                        time = event["t"] + history.shift
                        told = (time, f"{_clock(time)} {history.name}:{line} {json.dumps(event)}")
                        found.setdefault(id(violation), []).append(told)
        for violation in self.violations:
            reported_in_order = sorted(found.get(id(violation), []))
            violation.events = [text for _, text in reported_in_order[-SHOWN:]]


def _about(event: Event) -> list[tuple[int, int]]:
    if "partition" not in event or "t" not in event:
        return []
    partition = event["partition"]
    if event.get("event") == "relocate":
        return [(partition, move[0]) for move in event["moves"]]
    return [(partition, event["offset"])] if "offset" in event else []


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "none"


def _clock(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%H:%M:%S.%f")
