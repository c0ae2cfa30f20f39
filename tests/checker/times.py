"""The judgements of clocks: whether an ownership had ended, whether an owner could have known."""

from __future__ import annotations

from collections.abc import Callable

from tests.checker.ownership import Ownership
from tests.checker.reading import Event, History
from tests.checker.settings import Settings
from tests.checker.survey import FOREVER, Span, Survey, Trouble, standing_id

__all__ = ["Times"]

#: Whether a state - partition, topic, identity - has been written as far as the reading has come.
Seen = Callable[[int, str, int], bool]


class Times:
    """The ends of ownerships and the troubles of processes."""

    def __init__(self, found: Survey, settings: Settings, seen: Seen) -> None:
        self._survey, self._seen = found, seen
        self.skew = found.skew
        self._grace = settings.grace_ns
        self._late_loss = round(settings.late_loss * 1e9)
        #: Assignments that were read, by history and partition.
        self._count: dict[tuple[int, int], int] = {}
        #: The latest assignment of each ownership, by its number.
        self._span: dict[int, Span] = {}
        #: Ends that were read: identities of spans, and histories that are through.
        self._over: set[int] = set()
        self._through: set[int] = set()
        self._troubles: dict[int, list[Trouble]] = {}
        for trouble in found.troubles:
            for pid in trouble.pids:
                self._troubles.setdefault(pid, []).append(trouble)
        self._spans: dict[int, list[Span]] = {}
        for (_, partition), spans in found.spans.items():
            self._spans.setdefault(partition, []).extend(spans)

    # The order of reading

    def waits(self, history: History, event: Event, time: int) -> int:
        """How much speaks for reading others' events before this assignment: 0 nothing, 2 most."""
        if not self.skew:
            return 0
        try:
            partition = event["partition"]
            for topic in ("main", "retry"):
                if event[topic] is not None and self._comes(
                    history, partition, topic, standing_id(event[topic])
                ):
                    return 2
        except (KeyError, TypeError, IndexError):
            return 0
        for span in self._spans.get(partition, ()):
            if span.history is history or span.ends > time + self.skew:
                continue
            if id(span) not in self._over and span.history.number not in self._through:
                return 1
        return 0

    def _comes(self, history: History, partition: int, topic: str, state: int) -> bool:
        if self._seen(partition, topic, state):
            return False
        writers = self._survey.written.get((partition, topic, state), set())
        return any(number != history.number and number not in self._through for number in writers)

    def through(self, history: History) -> None:
        """The file has been read to its end."""
        self._through.add(history.number)

    def assigned(self, history: History, partition: int) -> Span:
        """The next assignment of this partition in this file."""
        number = self._count.get((history.number, partition), 0)
        self._count[history.number, partition] = number + 1
        return self._survey.spans[history.number, partition][number]

    def enter(self, mine: Ownership, span: Span) -> None:
        """From now on this is the ownership's latest assignment."""
        self._span[mine.number] = span

    def ended(self, mine: Ownership) -> None:
        """The end of the latest assignment was read."""
        self._over.add(id(self._span[mine.number]))

    def history(self, mine: Ownership) -> History:
        """Whose ownership it is."""
        return self._span[mine.number].history

    # The events that an end explains

    def end(self, mine: Ownership) -> tuple[str, int]:
        """How and when the ownership's latest assignment ended; "" if nobody knows."""
        span = self._span[mine.number]
        return span.kind, span.ends

    def gone(self, mine: Ownership, time: int) -> str:
        """Why the owner was not alive at that time, or couldn't know; "" if nothing says so."""
        span = self._span[mine.number]
        if span.kind in _IN_ORDER and span.ends <= time + self.skew:
            return span.kind
        if (trouble := self.trouble(mine, time)) is not None:
            return "stop" if trouble.stopped else "fault"
        if span.kind == "lost" and span.ends <= time + self._late_loss:
            return "lost"
        return ""

    def excused(self, mine: Ownership, time: int) -> bool:
        """Whether an owner whom another has relieved may begin something: while the owner can't know."""
        if mine.superseded is None:
            return False
        since = mine.superseded[1]
        stopped = (trouble := self.trouble(mine, since)) is not None and trouble.stopped
        if self.trouble(mine, time) is not None or time <= since + self.skew:
            return True
        kind, ends = self.end(mine)
        return (
            not stopped and kind == "lost" and time <= ends + self._grace and ends <= since + self._late_loss
        )

    def trouble(self, mine: Ownership, time: int) -> Trouble | None:
        """The fault that keeps the owner from knowing, or did a moment ago."""
        for trouble in self._troubles.get(self._span[mine.number].history.pid, ()):
            if trouble.begins - self.skew <= time <= trouble.ends + self._grace + self.skew:
                return trouble
        return None

    def heard(self, mine: Ownership, since: int, until: int) -> int:
        """How much of that time the owner ran and could hear from the log."""
        left = until - since
        for trouble in sorted(self._troubles.get(self._span[mine.number].history.pid, ()), key=_begins):
            over = min(until, trouble.ends + self._grace)
            left -= max(0, over - max(since, trouble.begins))
            since = max(since, over)
        return left

    def dies(self, history: History) -> int:
        """When its process was killed; `FOREVER` if it wasn't."""
        death = self._survey.death(history)
        return FOREVER if death is None else death

    def stopped_at(self, history: History, time: int) -> int:
        """When the process that ended at `time` did anything for the last time."""
        for trouble in self._troubles.get(history.pid, ()):
            if trouble.begins <= time <= trouble.ends:
                time = trouble.begins
        return time


def _begins(trouble: Trouble) -> int:
    return trouble.begins


_IN_ORDER = ("revoke", "close", "crash")
