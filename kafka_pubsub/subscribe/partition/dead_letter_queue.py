"""Messages that become dead letters: which of them wait, which are being written, and when they are tried again.

Theory. A dead-letter topic may be away for hours, and then each try takes as long as the log's client waits. So
dead-lettering has two steps. First the dead letters are written in a transaction of their own that holds nothing else
(`WriteDeadLetters`). That may take long, and only the keys of these messages wait for it. When the log has taken all
of them, the commit that calls their sources finished joins the transaction (`StoreMoves`). From then on this is the
partition's one unanswered commit, for the milliseconds that a commit takes.

Rules
1. Only records of the retry partition are dead-lettered. A message whose attempts are used up moves there first
   (`next_move`), so no later owner runs its callback, however long the dead-letter topic is away.
2. One batch is being written at a time. A message that waits is a few numbers in memory; its body is read for each try.
3. A record that is refused by itself (too large) pauses alone. A batch that fails without naming a record is tried
   again by halves, down to one record; that one then pauses alone, and the next try begins with another one.
4. While single records fail, the pause between two tries grows up to `LONGEST_PAUSE`; a success ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.key_line import NEVER
from kafka_pubsub.subscribe.partition.moves import LONGEST_REFUSED, REFUSED, Move

__all__ = ["LONGEST_PAUSE", "PAUSE", "DeadLetterQueue", "PendingDeadLetter"]

#: Dead letters that are written together: their bodies are in memory meanwhile, so they are few.
TOGETHER = 64
#: Seconds between two tries to write dead letters after one that failed; doubled after each single record that fails.
PAUSE, LONGEST_PAUSE = 1.0, 60.0


class PendingDeadLetter:
    """One record of the retry partition that is to become a dead letter."""

    __slots__ = ("key", "move", "not_before", "offset", "origin", "refusals", "reread", "stored")

    def __init__(self, offset: int, origin: int, key: bytes | None, move: Move | None = None) -> None:
        """`move`: what is to be written; None: it is made from the record's body when that is next."""
        self.offset = offset
        self.origin = origin
        #: The ordering key that waits for it; None: no key does.
        self.key = key
        self.move = move
        #: Whether the move is made anew for each try.
        self.reread = move is None
        #: Whether the transaction has committed.
        self.stored = False
        self.refusals = 0
        self.not_before = 0.0

    @property
    def message(self) -> Record | None:
        """Returns the message, as long as its body is here."""
        return None if self.move is None else self.move.record


class DeadLetterQueue:
    """The records of one partition that are to become dead letters."""

    def __init__(self) -> None:
        #: The records that wait, by offset in the retry partition, in the order in which they are tried.
        self.waiting: dict[int, PendingDeadLetter] = {}
        #: Those that are being written.
        self.out: Sequence[PendingDeadLetter] = ()
        #: Whether the log has taken all of `out`, so that the commit may join their transaction.
        self.written = False
        #: Whether that commit was sent.
        self.unanswered = False
        #: Whether bodies are being read, so that nothing can be written before they come.
        self.reading = False
        self._limit = TOGETHER
        self._pause = PAUSE
        self._not_before = 0.0
        # When the first of those that wait may be tried; perhaps too early, never too late.
        self._due = NEVER

    def add(self, pending: PendingDeadLetter) -> None:
        """Adds a record that is to be dead-lettered."""
        self.waiting[pending.offset] = pending
        self._due = min(self._due, pending.not_before)

    def take_back(self, offset: int) -> PendingDeadLetter | None:
        """Returns the record, which isn't dead-lettered for now; None: it doesn't wait here."""
        return self.waiting.pop(offset, None)

    def due_at(self) -> float | None:
        """Returns when the next batch may be written; None: not before something else happens."""
        if self.out or self.reading or not self.waiting:
            return None
        return max(self._not_before, self._due)

    def candidates(self, now: float) -> Sequence[PendingDeadLetter]:
        """Returns those that may go together now; the caller asks when `due_at` has come."""
        due = (pending for pending in self.waiting.values() if pending.not_before <= now)
        return list(islice(due, self._limit))

    def load(self, batch: Sequence[PendingDeadLetter]) -> None:
        """Takes note that these are being written from now on."""
        for pending in batch:
            del self.waiting[pending.offset]
        self.out, self.written, self.unanswered = batch, False, False
        self.look()

    def look(self) -> None:
        """Finds out when the first of those that wait is due."""
        self._due = min((pending.not_before for pending in self.waiting.values()), default=NEVER)

    def stored(self) -> Sequence[PendingDeadLetter]:
        """Ends the batch, which is dead-lettered; returns it."""
        done = self._back()
        self._pause, self._limit = PAUSE, min(TOGETHER, 2 * self._limit)
        for pending in done:
            pending.stored = True
        return done

    def aborted(self, refused: Collection[int], now: float) -> Sequence[PendingDeadLetter]:
        """Lets the batch wait again; `refused`: the numbers of those that can't be written at all now."""
        batch = self._back()
        alone = refused or range(len(batch) == 1)
        for at in alone:
            pending = batch[at]
            pending.refusals += 1
            pending.not_before = now + min(LONGEST_REFUSED, REFUSED * 2.0 ** min(pending.refusals - 1, 30))
        again = {pending.offset: pending for at, pending in enumerate(batch) if at not in alone}
        self.waiting = {**again, **self.waiting, **{batch[at].offset: batch[at] for at in alone}}
        if not refused:
            self._not_before = now + self._pause
            self._limit = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        self.look()
        return batch

    def _back(self) -> Sequence[PendingDeadLetter]:
        batch, self.out = self.out, ()
        self.written = self.unanswered = False
        return batch
