"""The first reading: which messages were published, where moved messages lay, who owned which partition, who died when.

Theory. Whatever must be known before the first event can be judged is collected here: all sends (a consumer's clock
may be ahead of its publisher's), the offsets of the retry topic, and how each ownership ended. All is kept in arrays,
by partition and offset, some 40 bytes a message.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.reading import Event, History, read
from tests.checker.report import Report, Violation
from tests.checker.settings import Settings

__all__ = ["GAP", "NO_KEY", "Log", "RetryLog", "Span", "Survey", "standing_id", "survey"]

#: State of an offset at which no message lies: nothing to finish.
GAP = 1
#: The number of "no key".
NO_KEY = 0
FOREVER = 1 << 62

_SKIPPED = tuple(
    f'{{"event":"{kind}"'.encode()
    for kind in (
        "handler_end",
        "ack",
        "nack",
        "extend",
        "stale",
        "expire",
        "durable_ack",
    )
)
_SURVEYED = (
    "send",
    "stored",
    "subscribe",
    "assign",
    "revoke",
    "close",
    "answer",
    "deliver",
    "commit",
    "relocate",
    "dead_letter",
    "replay",
)
_DELIVER, _RETRY = b'{"event":"deliver"', b'"retry"'
_SHA = b'"sha":"'
_PLACE = re.compile(rb'"partition":(\d+),"offset":(\d+),')


def standing_id(standing: Sequence[object]) -> int:
    """Tells committed states apart."""
    position, runs = standing[0], standing[1]
    return hash((position, *runs))  # type: ignore[misc]


class Log:
    """The messages that were published to a partition, by offset."""

    def __init__(self) -> None:
        #: The key's number; -1 where no message lies.
        self.key = array("i")
        self.sha = array("Q")
        #: Publisher and its number of the message.
        self.sent = array("q")
        #: The key's next message; -1 behind the last. Made by `link`.
        self.next = array("q")
        #: The key's first message, by the key's number.
        self.first: dict[int, int] = {}
        #: For each offset 0, or GAP.
        self.template = bytearray()
        #: Where the subscription begins.
        self.begins = 0

    def put(self, offset: int, key: int, sha: int, sent: int) -> bool:
        """False if something else lies there already."""
        missing = offset + 1 - len(self.key)
        if missing > 0:
            missing += (
                len(self.key) >> 3
            )  # in steps, for many small ones would each copy nothing but take time
            self.key.extend(array("i", [-1]) * missing)
            for column in (self.sha, self.sent):
                column.frombytes(bytes(8 * missing))
        if self.key[offset] >= 0:
            return False
        self.key[offset], self.sha[offset], self.sent[offset] = key, sha, sent
        return True

    def link(self) -> None:
        """Joins the messages of each key."""
        last: dict[int, int] = {}
        self.template = bytearray(len(self.key))
        self.next = array("q", [-1]) * len(self.key)
        for offset, key in enumerate(self.key):
            if key < 0:
                self.template[offset] = GAP
            elif key != NO_KEY:
                if key in last:
                    self.next[last[key]] = offset
                else:
                    self.first[key] = offset
                last[key] = offset


class RetryLog:
    """Whose message lies at each offset of a partition of the retry topic."""

    def __init__(self) -> None:
        self.origin = array("q")
        self.template = bytearray()

    def put(self, offset: int, origin: int) -> None:
        """A move, or a delivery, has told."""
        missing = offset + 1 - len(self.origin)
        if missing > 0:
            self.origin.extend(array("q", [-1]) * missing)
            self.template.extend(bytes([GAP]) * missing)
        self.origin[offset] = origin
        self.template[offset] = 0


@dataclass
class Span:
    """From an assignment to its end, by the clocks."""

    history: History
    begins: int
    ends: int = FOREVER
    #: revoke, lost, close, crash; empty: nobody knows.
    kind: str = ""
    #: Whether nothing may begin before a commit is accepted: there is a retry topic.
    gated: bool = False
    #: Commits that were accepted, or whose answer was never told. A commit that ended without an answer let nothing
    #: begin.
    commits: int = 0

    @property
    def stillborn(self) -> bool:
        """Whether there never was an ownership: the partition was given away before the process had taken it on.

        A slow or stopped process learns of that by its first commit, which is refused.
        """
        return self.gated and not self.commits and self.kind == "lost"


class Trouble(NamedTuple):
    """A time in which processes may not have heard from the log, or not have run at all."""

    pids: Sequence[int]
    begins: int
    ends: int
    stopped: bool


@dataclass
class Survey:
    """The findings of the first reading."""

    skew: int = 0
    """Nanoseconds by which two events of different hosts may be in the wrong order; 0 if there is one host."""
    keys: dict[str, int] = field(default_factory=dict)
    logs: dict[int, Log] = field(default_factory=dict)
    retries: dict[int, RetryLog] = field(default_factory=dict)
    spans: dict[tuple[int, int], list[Span]] = field(default_factory=dict)
    """By the history's number and the partition."""
    troubles: list[Trouble] = field(default_factory=list)
    deaths: dict[int, list[int]] = field(default_factory=dict)
    """When processes died, by pid; pids come again."""
    written: dict[tuple[int, str, int], set[int]] = field(default_factory=dict)
    """Which histories write a state: by partition, topic (main, retry) and state; only with several hosts."""
    in_doubt: dict[int, int] = field(default_factory=dict)
    """Sends without a report: fingerprint -> key."""
    stored_twice: int = 0
    """Messages that lie in the log once more than their publishers know."""
    replays: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """When dead letters were replayed, by partition and offset."""
    closed: set[int] = field(default_factory=set)
    """Histories with an end."""

    def log(self, partition: int) -> Log:
        return self.logs.setdefault(partition, Log())

    def retry(self, partition: int) -> RetryLog:
        return self.retries.setdefault(partition, RetryLog())

    def death(self, history: History) -> int | None:
        """When the process that wrote the file was killed."""
        born = history.head["t"] + history.shift - self.skew
        return min((at for at in self.deaths.get(history.pid, ()) if at >= born), default=None)


class _Reader:
    """Collects."""

    def __init__(self, report: Report, skew: int) -> None:
        self.found = Survey(skew)
        self._report = report
        self._waiting: dict[int, tuple[int, int]] = {}
        self._begun: dict[str, tuple[Sequence[int], int, bool]] = {}
        self._last_line: dict[int, int] = {}
        self._history: History
        self._at = 0

    def run(self, history: History) -> None:
        self._history, self._waiting = history, {}
        kinds = {kind: getattr(self, f"_{kind}") for kind in _SURVEYED}
        kinds |= dict.fromkeys(("crash", "stop", "cont", "fault", "mend"), self._trouble)
        for line, event in read(history.path, _SKIPPED, lambda *_: None, _matters):
            try:
                take = kinds.get(event["event"])
                if take is not None:
                    self._at = event["t"] + history.shift
                    take(event)
            except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
                if event.get("event") in (
                    "send",
                    "stored",
                    "subscribe",
                ):  # the second reading doesn't see them
                    where = (history.name, line, event)
                    self._report.add(Violation("malformed", f"{type(error).__name__}: {error}", where))
        for key, sha in self._waiting.values():
            self.found.in_doubt[sha] = key

    def _send(self, event: Event) -> None:
        key, keys = event["key"], self.found.keys
        number = NO_KEY if key is None else keys.setdefault(key, len(keys) + 1)
        self._waiting[event["n"]] = (number, int(event["sha"], 16))

    def _stored(self, event: Event) -> None:
        n, partition, offset = event["n"], event["partition"], event["offset"]
        key, sha = self._waiting.pop(n)
        if offset < 0:
            raise ValueError("a negative offset")
        if not self.found.log(partition).put(offset, key, sha, self._history.number << 40 | n):
            text = f"two messages are said to be stored at {partition}:{offset}"
            self._report.add(Violation("malformed", text, (self._history.name, 0, event)))

    def _subscribe(self, event: Event) -> None:
        for partition, position in event["positions"].items():
            self.found.log(int(partition)).begins = position

    def _spans(self, partition: int) -> list[Span]:
        return self.found.spans.setdefault((self._history.number, partition), [])

    def _assign(self, event: Event) -> None:
        gated = event["retry"] is not None
        self._spans(event["partition"]).append(Span(self._history, self._at, gated=gated))

    def _revoke(self, event: Event) -> None:
        spans = self._spans(event["partition"])
        if spans and not spans[-1].kind:
            spans[-1].ends, spans[-1].kind = self._at, "lost" if event["lost"] else "revoke"

    def _close(self, event: Event) -> None:
        self.found.closed.add(self._history.number)
        for (number, _), spans in self.found.spans.items():
            if number == self._history.number and spans and not spans[-1].kind:
                spans[-1].ends, spans[-1].kind = self._at, "close"

    def _answer(self, event: Event) -> None:
        for span in self._spans(event["partition"])[-1:]:
            span.commits -= event["accepted"] is not True
        if event["accepted"]:
            for origin, retry in event.get("placed", ()):
                self.found.retry(event["partition"]).put(retry, origin)

    def _deliver(self, event: Event) -> None:
        if event.get("retry") is not None:
            self.found.retry(event["partition"]).put(event["retry"], event["offset"])

    def _replay(self, event: Event) -> None:
        self.found.replays.setdefault((event["partition"], event["offset"]), []).append(self._at)

    def _relocate(self, event: Event) -> None:
        for origin, retry, *_ in event["moves"]:
            if retry is not None:  # where a move without an answer has put it
                self.found.retry(event["partition"]).put(retry, origin)

    def _dead_letter(self, event: Event) -> None:
        if event["retry"] is not None:
            self.found.retry(event["partition"]).put(event["retry"], event["offset"])

    def _commit(self, event: Event) -> None:
        for span in self._spans(event["partition"])[-1:]:
            span.commits += 1
        if not self.found.skew:
            return
        for topic in ("main", "retry"):
            if topic in event:
                state = (event["partition"], topic, standing_id(event[topic]))
                self.found.written.setdefault(state, set()).add(self._history.number)

    def _trouble(self, event: Event) -> None:
        kind, begun = event["event"], self._begun
        if kind == "crash":
            self.found.deaths.setdefault(event["of"], []).append(self._at)
        elif kind == "stop":
            begun[f"pid {event['of']}"] = ([event["of"]], self._at, True)
        elif kind == "fault":
            begun[event["name"]] = (event["pids"], self._at, False)
        else:
            pids, begins, stopped = begun.pop(f"pid {event['of']}" if kind == "cont" else event["name"])
            self.found.troubles.append(Trouble(pids, begins, self._at, stopped))

    def resolve(self, history: History) -> None:
        """Messages sent without a report, whose deliveries say where they lie."""
        in_doubt = {b"%016x" % sha for sha in self.found.in_doubt}

        def is_one(line: bytes) -> bool:
            return (
                line.startswith(_DELIVER) and line[(at := line.find(_SHA) + len(_SHA)) : at + 16] in in_doubt
            )

        for _, event in read(history.path, (), lambda *_: None, is_one):
            sha, log = int(event["sha"], 16), self.found.log(event["partition"])
            if sha in self.found.in_doubt and log.put(event["offset"], self.found.in_doubt[sha], sha, -1):
                del self.found.in_doubt[sha]

    @property
    def log_in_trouble(self) -> bool:
        """Whether something kept processes from hearing from the log at some time."""
        return bool(self._begun) or any(not trouble.stopped for trouble in self.found.troubles)

    def stored_again(self, histories: Sequence[History]) -> None:
        """Deliveries from places of which no publisher knows, of messages that lie elsewhere in their partition.

        When a leader dies, a producer without an answer sends records again that may have been stored, and a new leader
        doesn't always know. An application sees such a message twice, in its order.
        """
        found = self.found
        strange = [
            event
            for history in histories
            for _, event in read(history.path, (), lambda *_: None, self._is_strange)
        ]
        if not strange:
            return
        wanted = {int(event["sha"], 16) for event in strange}
        known = {
            sha: (partition, log.key[offset])
            for partition, log in found.logs.items()
            for offset, sha in enumerate(log.sha)
            if sha in wanted and log.key[offset] >= 0
        }
        for event in strange:
            sha, partition = int(event["sha"], 16), event["partition"]
            home, key = known.get(sha, (None, 0))
            if home == partition and found.log(partition).put(event["offset"], key, sha, -1):
                found.stored_twice += 1

    def _is_strange(self, line: bytes) -> bool:
        place = _PLACE.search(line) if line.startswith(_DELIVER) else None
        if place is None:
            return False
        log, offset = self.found.log(int(place[1])), int(place[2])
        return offset >= len(log.key) or log.key[offset] < 0

    def finish(self) -> Survey:
        found = self.found
        for pids, begins, stopped in self._begun.values():
            found.troubles.append(Trouble(pids, begins, FOREVER, stopped))
        for spans in filter(None, found.spans.values()):
            last = spans[-1]
            died = found.death(last.history)
            if not last.kind and died is not None:
                last.ends, last.kind = died, "crash"
        for partition, log in found.logs.items():
            log.link()
            _check_publishing(partition, log, self._report)
        return found


def _matters(line: bytes) -> bool:
    return not line.startswith(_DELIVER) or _RETRY in line


def _check_publishing(partition: int, log: Log, report: Report) -> None:
    """Of a publisher and key, messages that were sent later lie behind."""
    last: dict[tuple[int, int], int] = {}
    for offset, key in enumerate(log.key):
        if key <= NO_KEY or log.sent[offset] < 0:
            continue
        publisher, n = log.sent[offset] >> 40, log.sent[offset] & ((1 << 40) - 1)
        before = last.get((publisher, key), -1)
        if n < before:
            text = f"{partition}:{offset} was sent as number {n}, after number {before} of its key"
            report.add(Violation("publish_order", text, None, [(partition, offset)]))
        last[publisher, key] = n


def survey(histories: Sequence[History], report: Report, settings: Settings) -> Survey:
    """Reads all files once."""
    one_host = len({each.host for each in histories}) == 1
    reader = _Reader(report, 0 if one_host else round(settings.skew * 1e9))
    for history in histories:
        reader.run(history)
    if reader.found.in_doubt:
        for history in histories:
            reader.resolve(history)
    if reader.log_in_trouble:
        reader.stored_again(histories)
    report.stored_twice = reader.found.stored_twice
    return reader.finish()
