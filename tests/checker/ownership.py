"""An epoch of a partition in a process: inside it the promises are exact, and no clock is asked.

Theory. Messages that the first state calls finished, and messages acked under the ownership, are finished; of each key
only the oldest unfinished message may begin. For each offset of home and retry topic there is a byte: 0 says that a
message lies there which a commit may not call finished yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.checker.states import Standing, State, Tenure, holds
from tests.checker.survey import NO_KEY, Log, RetryLog

__all__ = [
    "ACKED",
    "DEAD",
    "FINISHED",
    "KNOWN",
    "MOVED",
    "REJECTED",
    "Again",
    "Lease",
    "Ownership",
    "Request",
    "runs_missing",
]

#: States beside 0 and GAP. MOVED: finished where it lay, but not for its key.
KNOWN, ACKED, MOVED, DEAD = 2, 4, 8, 16
FINISHED = 0xFF & ~MOVED

#: The cause of a message's move after its callback gave it up, and those of the moves that let it be delivered again.
REJECTED, RELEASED = "rejected", frozenset({"release", "replayed"})

#: Runs that may be with their handlers at a time in an ownership.
RUNS = 10_000


class Lease(NamedTuple):
    """An open delivery."""

    attempt: int
    batch: int | None


class Again(NamedTuple):
    """Why a message may be delivered again, and which delivery that was."""

    cause: str
    attempt: int


class Move(NamedTuple):
    """A message on its way to the retry topic."""

    offset: int
    retry: int | None
    attempt: int
    due_ms: int | None
    before: int
    why: str


class Request:
    """A commit, with the rest of its transaction."""

    __slots__ = ("dead", "main", "moves", "retry", "sent", "sent_at", "states")

    def __init__(self) -> None:
        self.moves: list[Move] = []
        #: offset, retry offset, state before
        self.dead: list[tuple[int, int | None, int]] = []
        self.main: Standing | None = None
        self.retry: Standing | None = None
        self.states: list[tuple[str, State]] = []
        self.sent = False
        self.sent_at = 0


class Ownership:
    """The facts that an owner may rely on."""

    def __init__(
        self, number: int, name: str, partition: int, epoch: int, log: Log, retry_log: RetryLog
    ) -> None:
        self.number, self.name, self.partition, self.epoch = number, name, partition, epoch
        self.log, self.retry_log = log, retry_log
        self.main = bytearray(log.template)
        self.retry = bytearray(retry_log.template)
        #: Where messages lie in the retry topic; the others lie at home.
        self.places: dict[int, int] = {}
        self.leases: dict[int, Lease] = {}
        self.again: dict[int, Again] = {}
        #: Messages of runs that are with their handlers, by the run's number.
        self.runs: dict[int, list[int]] = {}
        #: By key: no message before this offset is unfinished.
        self.pointers: dict[int, int] = {}
        #: Acks that no accepted commit holds yet, with their times.
        self.fresh: dict[int, int] = {}
        self.requests: dict[int, Request] = {}
        #: By topic: where the owner stands in the chain of states.
        self.tenures: dict[str, Tenure] = {}
        #: Since when commits aren't answered or refused; None: the last commit was accepted.
        self.blocked_since: int | None = None
        #: When a commit was refused last.
        self.refused_at: int | None = None
        #: Who took over while this owner didn't know, and when.
        self.superseded: tuple[str, int] | None = None
        #: When the ownership was revoked; None while it lasts.
        self.ended: int | None = None

    def begin(self, main: Standing, retry: Standing | None, retry_end: int) -> None:
        """Takes on the stored state."""
        _fill(self.main, main)
        if retry is None:
            return
        _fill(self.retry, retry)
        at = self.retry.find(0, 0, retry_end)
        while at >= 0:
            origin = self.retry_log.origin[at]
            if 0 <= origin < len(self.main):
                self.main[origin] = MOVED
                self.places[origin] = at
            at = self.retry.find(0, at + 1, retry_end)

    def unfinished_before(self, offset: int, batch: int | None, skipped: set[int]) -> int:
        """The oldest unfinished message of the same key before this message; -1 if there is none.

        Messages that are handed over together with it count as finished.
        """
        key = self.log.key[offset]
        if key <= NO_KEY:
            return -1
        main, after = self.main, self.log.next
        at = self.pointers.get(key, -1)
        if at < 0:
            at = self.log.first[key]
        while 0 <= at < offset and (main[at] & FINISHED or at in skipped):
            at = after[at]
        self.pointers[key] = at
        while 0 <= at < offset:
            together = batch is not None and at in self.leases and self.leases[at].batch == batch
            if not (together or main[at] & FINISHED or at in skipped):
                return at
            at = after[at]
        return -1

    def take_in_run(self, offset: int, batch: int) -> None:
        """A message is handed over together with others."""
        self.runs.setdefault(batch, []).append(offset)
        if len(self.runs) > RUNS:  # runs that were acked whole are never asked about
            del self.runs[next(iter(self.runs))]

    def behind_unfinished(self, offset: int, batch: int) -> bool:
        """Whether an earlier message of its key in the same run isn't finished; asked once of each, in order."""
        run, key = self.runs.get(batch, ()), self.log.key[offset]
        if run and run[-1] == offset:
            del self.runs[batch]
        return any(at < offset and self.log.key[at] == key and not self.main[at] & FINISHED for at in run)

    def leaves_rejection(self, offset: int, why: str) -> bool:
        """False if its callback gave the message up and the move lets it be delivered again nevertheless."""
        again = self.again.get(offset)
        if again is None or again.cause != REJECTED or why == REJECTED:
            return True
        self.again[offset] = Again("release", again.attempt)
        return why in RELEASED

    def step_over(self, offset: int) -> None:
        """Told once is enough: goes on as if everything before were finished."""
        self.pointers[self.log.key[offset]] = offset

    def finish(self, offset: int, time: int) -> None:
        """An ack."""
        self.main[offset] |= ACKED
        self.fresh[offset] = time
        if offset in self.places:
            self.retry[self.places[offset]] = KNOWN

    def crossed(self, offset: int) -> None:
        """An ack that met an expiry on its way: the ack may count or not."""
        self.main[offset] |= ACKED

    def forget_crossed(self, offset: int) -> None:
        """The message goes on, so the ack didn't count."""
        again = self.again.get(offset)
        if self.main[offset] & ACKED and again is not None and again.cause == "expire":
            self.reopen(offset)

    def reopen(self, offset: int) -> None:
        """An ack turns out not to have counted."""
        self.main[offset] &= ~ACKED
        self.fresh.pop(offset, None)
        if offset in self.places:
            self.retry[self.places[offset]] = 0
        key = self.log.key[offset]
        at = self.pointers.get(key, -1)
        if at > offset or at < 0:
            self.pointers.pop(key, None)

    def request(self, number: int) -> Request:
        return self.requests.setdefault(number, Request())

    def undo(self, request: Request) -> None:
        """The transaction was refused."""
        undone = [(move.offset, move.retry, move.before) for move in request.moves] + request.dead
        for offset, retry, before in undone:
            self.main[offset] = before
            if retry is not None:
                self.retry[retry] = 0

    def early_in(self, standing: Standing, topic: str) -> list[int]:
        """Offsets that the standing calls finished and that aren't; a few of them."""
        book = self.main if topic == "main" else self.retry
        position, runs = standing[0], standing[1]
        early: list[int] = []
        for start, end in ((0, position), *zip(runs[::2], runs[1::2], strict=True)):
            at = book.find(0, start, end)
            while at >= 0 and len(early) < 10:
                early.append(at)
                at = book.find(0, at + 1, end)
        return early

    def settle(self, main: Standing | None, retry: Standing | None) -> Iterator[int]:
        """An accepted commit: yields the acks that no commit before held."""
        for offset in list(self.fresh):
            place = self.places.get(offset)
            standing, at = (main, offset) if place is None else (retry, place)
            if standing is not None and holds(standing, at):
                del self.fresh[offset]
                yield offset


def _fill(book: bytearray, standing: Standing) -> None:
    position, runs = standing[0], standing[1]
    for start, end in ((0, position), *zip(runs[::2], runs[1::2], strict=True)):
        size = min(end, len(book)) - start
        if size > 0:
            book[start : start + size] = bytes([KNOWN]) * size


def runs_missing(before: Standing, after: Standing) -> list[tuple[int, int]]:
    """Runs of `before` that `after` doesn't call finished."""
    position, runs = after[0], after[1]
    whole: set[tuple[int, int]] = set(zip(runs[::2], runs[1::2], strict=True))
    above = [(max(start, position), end) for start, end in zip(before[1][::2], before[1][1::2], strict=True)]
    return [run for run in above if run[0] < run[1] and run not in whole and not _covered(*run, runs)]


def _covered(start: int, end: int, runs: Sequence[int]) -> bool:
    at = bisect_right(runs, start)
    return at % 2 == 1 and end <= runs[at]
