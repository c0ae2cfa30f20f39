"""When to commit, and the contents: one commit is unanswered at a time, plain or in a transaction; the next waits.

Rules
1. I2: the position committed is `offsets.committable`; the metadata lists the finished offsets above it. The retry
   partition's position and metadata are committed with it, in the same request.
2. No second commit is sent before the answer to the first. After a refusal the next commit holds the same content.
3. Commits are up to `COMMIT_INTERVAL` apart, except the final commit at a revoke, and commits that a caller waits for.
4. A move's commit calls its sources finished; `Offsets` and `FinishedRuns` note that only when the commit has been
   stored.
5. I5: finished offsets can always be committed. When they are too many for the metadata the commit is a transaction
   with a checkpoint, which the metadata names (`checkpoint_schedule`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named, split
from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints, Progress
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, MovedRecord, StoreMoves
from kafka_pubsub.subscribe.partition.log_side import LogSide, SideProgress
from kafka_pubsub.subscribe.partition.moves import Move
from kafka_pubsub.subscribe.partition.next_move import headers_of
from kafka_pubsub.subscribe.partition.settings import Start

__all__ = ["COMMIT_INTERVAL", "Commits", "records_of"]

#: Seconds between commits. Acks younger than this, and than the milliseconds of an answer, are delivered again after a
#: crash; the documented limit is 200 ms.
COMMIT_INTERVAL = 0.15


class Commits:
    """The commits of a partition under one ownership."""

    def __init__(self, start: Start, home: LogSide, retry: LogSide, older: Callable[[], bool]) -> None:
        """`older` returns whether newer copies of home's messages may lie in the retry partition."""
        self._sides = home, retry
        self._older = older
        self._writer, self._nonce = start.writer, start.found.nonce
        self.checkpoints = Checkpoints(start, self._sides)
        #: The log's contents: the last accepted commit, or the commit that was there at the beginning.
        self.stored = self._inherited = start.stored
        #: The commit that was sent and is unanswered.
        self.in_flight: CommitBoth | None = None
        self._named: Callable[[int], CommitBoth] | None = None
        #: True when there is something to commit.
        self.dirty = False
        #: Whether the last commit was refused: then waiters don't hurry the next commit.
        self.refused = False
        self._not_before = 0.0
        #: Called for each commit when the commit is made, and when it is answered (`durable_acks`).
        self.on_made: Callable[[], None] = _nothing
        self.on_answered: Callable[[bool], None] = _nothing

    def due_at(self) -> float | None:
        """Returns when the next commit is due, or None."""
        return self._not_before if self.dirty and self.in_flight is None else None

    def checkpoint_due_at(self) -> float | None:
        """Returns when a checkpoint is due and a commit may go with it; None: nothing asks for a checkpoint."""
        due = self.checkpoints.due_at()
        return None if due is None else max(due, self._not_before)

    def open(self, now: float) -> bool:
        """Returns whether the time for a commit has come, if there is anything to commit."""
        return self.in_flight is None and now >= self._not_before

    def due(self, now: float) -> bool:
        """Returns whether to commit now."""
        return self.dirty and self.open(now)

    def hurry(self) -> None:
        """Makes the next commit due at once, unless the last commit was refused."""
        self.dirty = True
        if not self.refused:
            self._not_before = 0.0

    def soon(self, at: float) -> None:
        """Makes the next commit due at `at`, unless the last commit was refused, to hold acks until then."""
        self.dirty = True
        if not self.refused:
            self._not_before = min(self._not_before, at)

    # Sending

    def announce(self, now: float) -> CommitBoth | StoreMoves:
        """Makes the commit that announces this owner: a plain commit, if the first; unanswered from now on."""
        if self.stored is not self._inherited:
            return self.transaction((), now)  # the partition came back, and more may have finished than fits
        self._next_at(now)
        progress = self._progress(())
        return self._plain(progress, self._both(progress, clean=False), now)

    def transaction(
        self, moves: Sequence[Move], now: float, *, clean: bool = False, closing: bool = False
    ) -> CommitBoth | StoreMoves:
        """Makes the commit to send, with these moves, unanswered from now on; plain if no transaction is needed.

        `closing`: adds a checkpoint if anything isn't in a checkpoint. Dead letters always come with a checkpoint:
        another topic holds them, so an owner that goes on from the last checkpoint must know of each, or would
        dead-letter the message a second time.
        """
        self._next_at(now)
        progress = self._progress(moves)
        commit = self._both(progress, clean=clean)
        records = records_of(moves)
        points = self.checkpoints
        unstored = closing and points.differs(progress)
        if unstored or _buries(records) or points.wanted(_size(commit, progress), now):
            return self._checkpoint(progress, records, now, clean=clean)
        self._plain(progress, commit, now)
        return StoreMoves(records, commit) if moves else commit

    def _plain(self, progress: Progress, commit: CommitBoth, now: float) -> CommitBoth:
        if _size(commit, progress) > ack_map.CAPACITY - ack_map.NOTED:
            raise InvariantViolated("I5: what is finished doesn't fit the metadata")
        self.checkpoints.made(progress, now)
        return self._send(commit)

    def _checkpoint(
        self, progress: Progress, records: Sequence[MovedRecord], now: float, *, clean: bool
    ) -> StoreMoves:
        checkpoint = self.checkpoints.write(progress, now)
        more = bool(checkpoint.main.runs), bool(checkpoint.retry.runs)
        bare = Progress(*(side._replace(fresh=()) for side in progress))
        older = self._older()

        def named(offset: int) -> CommitBoth:
            name = Named(offset, checkpoint.nonce)
            return self._encoded(bare, name, more, clean=clean, older=older)

        forecast = named(0)
        self._send(forecast)
        self._named = named
        return StoreMoves(records, forecast, split(checkpoint), self.checkpoints.headers(checkpoint), named)

    def _next_at(self, now: float) -> None:
        # The next multiple of the interval: busy partitions commit together, in the same request.
        count = now // COMMIT_INTERVAL + 1
        count += count * COMMIT_INTERVAL <= now  # the quotient of a multiple may be rounded down
        self._not_before = count * COMMIT_INTERVAL

    def _send(self, commit: CommitBoth) -> CommitBoth:
        self.in_flight, self.dirty, self._named = commit, False, None
        self.on_made()
        return commit

    def final_commit(self, *, clean: bool) -> CommitBoth | None:
        """Makes the plain final commit of a revoke; None: there is nothing to commit, or the metadata doesn't fit."""
        if not self.dirty and self.in_flight is None:
            return None
        progress = self._progress(())
        commit = self._both(progress, clean=clean)
        return self._send(commit) if _size(commit, progress) <= ack_map.CAPACITY - ack_map.NOTED else None

    def answered(self, *, accepted: bool, checkpoint: int | None = None) -> None:
        """Takes the log's answer to the commit; `checkpoint`: where the checkpoint of its transaction was stored."""
        if self.in_flight is None:
            return
        self.refused = not accepted
        if accepted:
            self.stored = self.in_flight
            if self._named is not None:
                if checkpoint is None:
                    raise InvariantViolated("a checkpoint was stored, and its offset is missing")
                self.stored = self._named(checkpoint)
        else:
            self.dirty = True
        self.checkpoints.answered(checkpoint if accepted else None)
        self.in_flight = self._named = None
        self.on_answered(accepted)

    # Content

    def _progress(self, moves: Sequence[Move]) -> Progress:
        """Returns the state of both logs with these moves finished."""
        home, retry = self._sides
        return Progress(
            home.progress({move.origin for move in moves if move.source is None}),
            retry.progress({move.source for move in moves if move.source is not None}),
        )

    def _both(self, progress: Progress, *, clean: bool) -> CommitBoth:
        home, retry = (
            side.holds_more(each.position) for side, each in zip(self._sides, progress, strict=True)
        )
        named, older = self.checkpoints.named, self._older()
        return self._encoded(progress, named, (home, retry), clean=clean, older=older)

    def _encoded(
        self, progress: Progress, named: Named | None, more: tuple[bool, bool], *, clean: bool, older: bool
    ) -> CommitBoth:
        """Returns the commit. `more`: the checkpoint has runs above the position of home, and of retry."""
        home, retry = (
            self._encode(side, named, has_more, clean=clean, older=older and side is progress.home)
            for side, has_more in zip(progress, more, strict=True)
        )
        return CommitBoth(home.offset, home.metadata, retry, home.epoch)

    def _encode(
        self, side: SideProgress, named: Named | None, more: bool, *, clean: bool, older: bool
    ) -> Commit:
        said = AckMap(
            self._writer,
            tuple(side.fresh),
            clean,
            self._nonce,
            side.notes,
            named,
            more,
            older,
            side.doubt,
            side.read,
        )
        position = side.position
        return Commit(position, ack_map.encode(said, position), side.read.epoch_at(position))


def _buries(records: Sequence[MovedRecord]) -> bool:
    """Returns whether dead letters are among the records."""
    return any(record.dead for record in records)


def records_of(moves: Sequence[Move]) -> list[MovedRecord]:
    """Returns the records to write for these moves."""
    return [MovedRecord(move.record, headers_of(move), move.death is not None) for move in moves]


def _size(commit: CommitBoth, progress: Progress) -> int:
    """Returns the number of characters of the longer text, without its notes."""
    texts = commit.metadata, commit.retry.metadata
    return max(
        ack_map.bare_size(text, side.notes, side.position) for text, side in zip(texts, progress, strict=True)
    )


def _nothing(*_: object) -> None:
    """Ignores the call: the default of `on_made` and `on_answered`."""
