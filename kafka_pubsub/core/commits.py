"""When to commit what: one commit in flight, plain or in a transaction, and the next one not before its time.

Rules
1. I2: the position committed is `offsets.committable`; the ack map says what is finished above it. The retry
   partition's own are committed with it, in the same request.
2. No second commit before the answer to the first. A refused one leaves its content to the next.
3. Commits are up to `COMMIT_INTERVAL` apart, except the last word at a revoke, and those that somebody waits for.
4. A relocation's commit calls its sources finished, which the books do only when it has been stored.
5. Each says how far its owner may come before the next one is stored (`Stride`). Who reads on further says so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.ack_map import AckMap
from kafka_pubsub.core.effects import Commit, CommitBoth, Relocate, Relocation
from kafka_pubsub.core.fates import headers_of
from kafka_pubsub.core.moves import Move
from kafka_pubsub.core.notes import NOTHING, Notes
from kafka_pubsub.core.offsets import Offsets
from kafka_pubsub.core.retry_books import RetryBooks
from kafka_pubsub.core.stride import Stride
from kafka_pubsub.errors import InvariantViolated

__all__ = ["COMMIT_INTERVAL", "Commits", "Noter", "records_of"]

#: Seconds between commits. Acks younger than this, and the milliseconds of an answer, are redelivered after a crash;
#: 200 ms are promised.
COMMIT_INTERVAL = 0.15


class Noter(Protocol):
    """Tells what was started and isn't finished. `gone`: what the commit calls finished besides."""

    def main_notes(self, position: int, gone: Collection[int]) -> Notes: ...
    def retry_notes(self, position: int, gone: Collection[int]) -> Notes: ...


class Commits:
    """The commits of one partition under one ownership."""

    def __init__(
        self,
        offsets: Offsets,
        writer: int,
        stored: Commit | CommitBoth,
        nonce: int = 0,
        books: RetryBooks | None = None,
        noter: Noter | None = None,
        before: int = 0,
    ) -> None:
        """`before`: how far the last owner may have come, if it left in disorder."""
        self._offsets = offsets
        self._writer = writer
        self._nonce = nonce
        self._books = books
        self._noter = noter
        #: What the log holds: the last accepted commit, or what was there at the beginning.
        self.stored = stored
        #: Sent, and not answered yet.
        self.in_flight: Commit | CommitBoth | None = None
        #: True when there is something to commit.
        self.dirty = False
        #: Whether the last one was refused: then even who waits for the next waits until it is due.
        self.refused = False
        self._not_before = 0.0
        self._stride = Stride(offsets.position, COMMIT_INTERVAL, before)
        #: Told of each commit when it is made, and of its answer (`durability`).
        self.on_made: Callable[[], None] = _nothing
        self.on_answered: Callable[[bool], None] = _nothing

    def due_at(self) -> float | None:
        """When the next commit is due, if one is."""
        return self._not_before if self.dirty and self.in_flight is None else None

    def open(self, now: float) -> bool:
        """Whether it is time for a commit, if there is anything to say."""
        return self.in_flight is None and now >= self._not_before

    def due(self, now: float) -> bool:
        """Whether to commit now."""
        return self.dirty and self.open(now)

    def hurry(self) -> None:
        """Somebody waits for the next commit."""
        self.dirty = True
        if not self.refused:
            self._not_before = 0.0

    def read_on(self) -> None:
        """More was read: who takes over must know if it is more than the last commit says (rule 5)."""
        if self._offsets.position > self._stride.told:
            self.hurry()

    def soon(self, at: float) -> None:
        """Somebody waits, and bears that others' acks of the next moment are waited for."""
        self.dirty = True
        if not self.refused:
            self._not_before = min(self._not_before, at)

    def make(self, now: float) -> Commit | CommitBoth:
        """The commit to send; it is in flight from now on."""
        self._next_at(now)
        return self._send(self._commit(clean=False))

    def _next_at(self, now: float) -> None:
        self._stride.look(self._offsets.position, now)
        # The next multiple of the interval: partitions that are busy commit together, in one request.
        count = now // COMMIT_INTERVAL + 1
        count += count * COMMIT_INTERVAL <= now  # the quotient of a multiple may be rounded down
        self._not_before = count * COMMIT_INTERVAL

    def _send(self, commit: Commit | CommitBoth) -> Commit | CommitBoth:
        self.in_flight, self.dirty = commit, False
        self.on_made()
        return commit

    def relocation(
        self, moves: Sequence[Move], now: float, *, clean: bool = False, tally: Relocation | None = None
    ) -> Relocate:
        """The transaction to send; its commit is in flight from now on. `tally`: goes with them."""
        self._next_at(now)
        commit = self._commit(clean=clean, moves=moves)
        if not isinstance(commit, CommitBoth):
            raise InvariantViolated("a relocation without a retry partition")
        self._send(commit)
        records = records_of(moves)
        return Relocate(records if tally is None else [*records, tally], commit)

    def last_word(self, *, clean: bool = True) -> Commit | CommitBoth | None:
        """The commit to send at a revoke, if there is anything to say."""
        if not self.dirty and self.in_flight is None:
            return None
        return self._send(self._commit(clean=clean))

    def answered(self, *, accepted: bool) -> None:
        """The log has answered the commit in flight."""
        if self.in_flight is None:
            return
        self.refused = not accepted
        if accepted:
            self.stored = self.in_flight
        else:
            self.dirty = True
        self.in_flight = None
        self.on_answered(accepted)

    def _commit(self, *, clean: bool, moves: Sequence[Move] = ()) -> Commit | CommitBoth:
        gone = {move.origin for move in moves if move.source is None}
        if gone:
            position, runs = self._offsets.after(gone)
        else:
            position, runs = self._offsets.committable, self._offsets.runs()
        notes = NOTHING if self._noter is None else self._noter.main_notes(position, gone)
        covered = runs[-1][1] if runs else position
        reach = max(1, self._stride.told - covered, self._offsets.position - covered)
        text = ack_map.encode(AckMap(self._writer, tuple(runs), clean, self._nonce, notes, reach), position)
        if self._books is None:
            return Commit(position, text)
        return CommitBoth(position, text, self._retry_commit(self._books, clean, moves))

    def _retry_commit(self, books: RetryBooks, clean: bool, moves: Sequence[Move]) -> Commit:
        gone = {move.source for move in moves if move.source is not None}
        books = books.after(gone) if gone else books
        position = books.committable
        notes = NOTHING if self._noter is None else self._noter.retry_notes(position, gone)
        found = AckMap(self._writer, tuple(books.fresh), clean, self._nonce, notes, tally=books.tally)
        return Commit(position, ack_map.encode(found, position))

    def check(self, moves: Sequence[Move] = ()) -> None:
        """Raises `InvariantViolated` if a map has outgrown its place; `moves`: as if these were finished."""
        saved, self._noter = self._noter, None
        try:
            commit = self._commit(clean=False, moves=moves)
        finally:
            self._noter = saved
        room = ack_map.CAPACITY - (0 if saved is None else ack_map.NOTED)
        texts = [commit.metadata, *([commit.retry.metadata] if isinstance(commit, CommitBoth) else [])]
        if any(len(text) > room for text in texts):
            raise InvariantViolated("I5: the ack map doesn't fit the metadata")


def records_of(moves: Sequence[Move]) -> list[Relocation]:
    """What is written for these moves."""
    return [Relocation(move.record, headers_of(move), move.death is not None) for move in moves]


def _nothing(*_: object) -> None:
    """Nobody waits to be told."""
