"""Messages that leave their place for the end of the retry partition.

Theory. A move is a record to be written and a source to be finished, both in one Kafka transaction. Until that has
committed the source stays unfinished, so whatever goes wrong, no message is lost and none exists twice.

Rules
1. One batch is unanswered at a time, and while it is no other commit of the partition is sent: a plain commit between
   a transaction's offsets and its end would overwrite the newer metadata.
2. A batch that was aborted is loaded again after a pause that grows. A record that was refused by itself (too large,
   its topic is gone) pauses alone, so that the others don't wait for it for ever. When the abort names no record, half
   of the batch goes next, down to a single record; that one pauses alone, and others go before it.
3. A batch that was never answered isn't loaded again: only the log knows its outcome, so the partition starts anew.
4. A transaction costs the encoding of both metadata texts, whatever is in it. So a move whose delivery isn't due soon
   waits for others to share it (`leave_at`); when one leaves, all leave that may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.key_line import NEVER
from kafka_pubsub.subscribe.partition.record import Broken, Death, RetryInfo

__all__ = ["BATCH", "BATCH_BYTES", "PATIENCE", "SHARE", "Move", "Moves"]

#: The most that goes in one batch: a transaction of a few milliseconds, and less than a broker takes in one request.
BATCH = 1000
BATCH_BYTES = 4 * 1024 * 1024
#: Seconds that a move waits for others at most, and the part of the wait before its redelivery that this may take.
PATIENCE, SHARE = 0.15, 0.25
#: Seconds before an aborted batch, and a refused record, are tried again; both double each time.
PAUSE, LONGEST_PAUSE = 0.1, 5.0
REFUSED, LONGEST_REFUSED = 1.0, 60.0


class Move:
    """One message that moves."""

    __slots__ = (
        "death",
        "info",
        "key",
        "leave_at",
        "not_before",
        "origin",
        "read_back",
        "record",
        "refusals",
        "said",
        "source",
        "stored",
    )

    def __init__(
        self,
        record: Record,
        info: RetryInfo | Broken,
        *,
        key: bytes | None,
        source: int | None,
        death: Death | None = None,
    ) -> None:
        self.record = record
        #: The content of its header; and that header's value, once the move was sent: a record read back with it is
        #: ours.
        self.info = info
        self.said = b""
        #: The ordering key that waits for it; None: no key waits.
        self.key = key
        self.origin = record.offset()
        #: Its offset in the retry partition; None: it comes from main.
        self.source = source
        #: For the dead letters (`dead_letter_queue`); None: for the retry partition.
        self.death = death
        #: Whether its new record was read before the transaction's answer came.
        self.read_back = False
        #: Whether the transaction has committed.
        self.stored = False
        self.refusals = 0
        self.not_before = 0.0
        #: The time until which it may wait for others (rule 4).
        self.leave_at = 0.0

    def let_go(self) -> None:
        """Frees the record: until the move is read back only numbers are needed, and thousands may be moving."""
        del self.record

    def __repr__(self) -> str:
        where = "main" if self.source is None else f"retry {self.source}"
        return f"<Move {self.origin} from {where} {'to the dead letters' if self.death else ''} {self.info}>"


class Moves:
    """The moves of one partition."""

    def __init__(self) -> None:
        self.waiting: list[Move] = []
        #: The moves in the transaction that is unanswered.
        self.unanswered: Sequence[Move] = ()
        self._pause = PAUSE
        self._not_before = 0.0
        # How many may go in one batch.
        self._limit = BATCH
        # When the first of those that wait has to go, or may go again; perhaps too early, never too late.
        self._due = NEVER
        # How many come from main.
        self._main = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unanswered)

    def due_at(self) -> float | None:
        """Returns when the next batch may be loaded."""
        if not self.waiting or self.unanswered:
            return None
        return max(self._not_before, self._due)

    def add(self, move: Move) -> None:
        """Adds a move."""
        self.waiting.append(move)
        self._main += move.source is None
        self._due = min(self._due, 0.0 if len(self.waiting) >= BATCH else move.leave_at)

    def _see_due(self) -> None:
        self._due = min((max(move.leave_at, move.not_before) for move in self.waiting), default=NEVER)

    def may_load(self, now: float, *, early: bool = False) -> bool:
        """Returns whether something may go; `early`: a commit would be sent anyway."""
        return not (self.unanswered or now < self._not_before or (now < self._due and not early))

    def load(self, now: float, *, early: bool = False) -> Sequence[Move]:
        """Takes the next batch, which is unanswered from now on; an empty one if nothing may go."""
        if not self.may_load(now, early=early):
            return ()
        batch: list[Move] = []
        rest: list[Move] = []
        size = 0
        for move in self.waiting:
            size += len(move.record)
            fits = len(batch) < self._limit and (size <= BATCH_BYTES or not batch)
            if fits and move.not_before <= now:
                batch.append(move)
            else:
                size -= len(move.record)
                rest.append(move)
        self.waiting, self.unanswered = rest, batch
        self._see_due()
        return batch

    def stored(self) -> Sequence[Move]:
        """Ends the batch, whose transaction has committed; returns its moves."""
        done, self.unanswered = self.unanswered, ()
        self._main -= sum(move.source is None for move in done)
        self._pause, self._limit = PAUSE, min(BATCH, 2 * self._limit)
        return done

    def aborted(self, refused: Mapping[int, str], now: float) -> None:
        """Takes back the aborted batch; `refused`: the records in it that can't be written at all now, and why."""
        batch, self.unanswered = self.unanswered, ()
        for at in refused:
            batch[at].refusals += 1
            batch[at].not_before = now + min(
                LONGEST_REFUSED, REFUSED * 2.0 ** min(batch[at].refusals - 1, 30)
            )
        if not refused:
            self._not_before = now + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
            self._limit = max(1, len(batch) // 2)
        if len(batch) == 1 and not refused:
            batch[0].not_before = now + self._pause
            self.waiting = [*self.waiting, *batch]
        else:
            self.waiting = [*batch, *self.waiting]
        self._see_due()

    def count(self, *, main: bool) -> int:
        """Returns how many moves come from main, or from the retry partition: all may yet finish."""
        return self._main if main else len(self) - self._main
