"""Messages that leave their place: for the end of the retry partition, or for the dead letters.

Theory. A move is a record to be written and a source to be finished, both in the same Kafka transaction. Until that has
committed the source stays unfinished, so whatever goes wrong, no message is lost and none exists twice.

Moves into the retry partition and dead letters wait in a queue each, because a dead-letter topic may be away for hours,
and each try then takes as long as the log's client waits. So dead letters are first written in a transaction of their
own with nothing else (`WriteDeadLetters`). That may take long, and only the keys of these messages wait.
When the log has taken all of them, the commit that calls their sources finished joins the transaction (`StoreMoves`).
From then on this is the partition's only unanswered commit, for the milliseconds that a commit takes.

Rules
1. A single batch of a queue is unanswered at a time. While a batch is part of a commit, no other commit of the
   partition is sent: a plain commit between a transaction's offsets and its end would overwrite the newer metadata.
2. A record that was refused by itself (too large, its topic is gone) pauses alone, so that the others don't wait
   for ever. When an abort names no record, half of the batch goes next, down to a single record; this record pauses
   alone too, the others go first, and the pause of the queue grows until something is stored.
3. A batch of moves that was never answered isn't loaded again: only the log knows its outcome, so the partition starts
   anew.
4. A transaction costs the encoding of both metadata texts, whatever its contents. So a move whose delivery isn't due
   soon waits for others to share a transaction (`leave_at`); when a move leaves, all leave that may.
5. Only records of the retry partition are dead-lettered. A message whose attempts are used up moves there first
   (`next_move`), so no later owner runs its callback, however long the dead-letter topic is away.
6. A dead letter that waits is a few numbers in memory; its body is read for each try.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import Broken, Death, RetryInfo
from kafka_pubsub.subscribe.partition.key_line import NEVER

__all__ = [
    "BATCH",
    "BATCH_BYTES",
    "DEAD_LETTERS",
    "MOVES",
    "PATIENCE",
    "SHARE",
    "DeadLetter",
    "Move",
    "MoveQueue",
]

#: The most that goes in a batch: a transaction of a few milliseconds, and less than a broker takes in a request.
BATCH = 1000
BATCH_BYTES = 4 * 1024 * 1024
#: Seconds that a move waits for others at most, and the part of the wait before its redelivery that this may take.
PATIENCE, SHARE = 0.15, 0.25
#: Seconds before a refused record is tried again; doubled each time.
REFUSED, LONGEST_REFUSED = 1.0, 60.0


class Pace(NamedTuple):
    """How much of a queue goes at once, and the seconds before an aborted batch is tried again; they double."""

    most: int
    pause: float
    longest_pause: float


MOVES = Pace(BATCH, 0.1, 5.0)
#: Their bodies are in memory meanwhile, so they are few.
DEAD_LETTERS = Pace(64, 1.0, 60.0)


class Queued:
    """A message that waits in a queue."""

    __slots__ = ("key", "leave_at", "not_before", "origin", "refusals", "source", "stored")

    def __init__(self, origin: int, key: bytes | None) -> None:
        self.origin = origin
        #: The ordering key that waits for the move; None: no key waits.
        self.key = key
        #: Its offset in the retry partition; None: it comes from home.
        self.source: int | None = None
        #: Whether the transaction has committed.
        self.stored = False
        self.refusals = 0
        self.not_before = 0.0
        #: The time until which the move may wait for others (rule 4).
        self.leave_at = 0.0


class Move(Queued):
    """A message that moves."""

    __slots__ = ("death", "info", "read_back", "record", "said")

    def __init__(
        self,
        record: Record,
        info: RetryInfo | Broken,
        *,
        key: bytes | None,
        source: int | None,
        death: Death | None = None,
    ) -> None:
        super().__init__(record.offset(), key)
        self.source = source
        self.record = record
        #: The content of its header; and that header's value, once the move was sent: a record read back with it is
        #: ours.
        self.info = info
        self.said = b""
        #: For the dead letters; None: for the retry partition.
        self.death = death
        #: Whether its new record was read before the transaction's answer came.
        self.read_back = False

    def let_go(self) -> None:
        """Frees the record: until the move is read back only numbers are needed, and thousands may be moving."""
        del self.record

    def __repr__(self) -> str:
        where = "home" if self.source is None else f"retry {self.source}"
        return f"<Move {self.origin} from {where} {'to the dead letters' if self.death else ''} {self.info}>"


class DeadLetter(Queued):
    """A record of the retry partition that is to become a dead letter."""

    __slots__ = ("move", "offset", "reread")

    def __init__(self, offset: int, origin: int, key: bytes | None, move: Move | None = None) -> None:
        """`move`: the record to write; None: the record is made from the message's body when its turn comes."""
        super().__init__(origin, key)
        self.offset = self.source = offset
        self.move = move
        #: Whether the move is made anew for each try.
        self.reread = move is None

    @property
    def message(self) -> Record | None:
        """Returns the message, as long as its body is here."""
        return None if self.move is None else self.move.record


Waiting = TypeVar("Waiting", bound=Queued)


class MoveQueue(Generic[Waiting]):
    """The messages of a partition that wait for their transaction, in the order in which they are tried."""

    def __init__(self, pace: Pace) -> None:
        self.waiting: list[Waiting] = []
        #: Moves in the unanswered transaction.
        self.unanswered: Sequence[Waiting] = ()
        #: The number of those that come from home: all may yet finish.
        self.from_home = 0
        self._pace = pace
        self._pause = pace.pause
        self._not_before = 0.0
        # How many may go in a batch.
        self._limit = pace.most
        # When the first waiting move has to go, or may go again; perhaps too early, never too late.
        self._due = NEVER

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unanswered)

    def due_at(self) -> float | None:
        """Returns when the next batch may be loaded."""
        if not self.waiting or self.unanswered:
            return None
        return max(self._not_before, self._due)

    def add(self, message: Waiting) -> None:
        """Adds a message."""
        self.waiting.append(message)
        self.from_home += message.source is None
        self._due = min(self._due, 0.0 if len(self.waiting) >= self._pace.most else message.leave_at)

    def take_back(self, source: int) -> Waiting | None:
        """Takes back the message of that retry offset, which stays in its place; None: it doesn't wait here."""
        for message in self.waiting:
            if message.source == source:
                self.waiting.remove(message)
                return message
        return None

    def load(
        self, now: float, record_of: Callable[[Waiting], Record | None], *, early: bool = False
    ) -> Sequence[Waiting]:
        """Takes the next batch, which is unanswered from now on; an empty batch if nothing may go.

        `record_of` returns the record to write; None: the message can't go yet. `early`: a commit would be sent
        anyway, so moves that wait for others go too.
        """
        if self.unanswered or now < self._not_before or (now < self._due and not early):
            return ()
        batch: list[Waiting] = []
        size = 0
        may_go = (message for message in self.waiting if message.not_before <= now)
        for message in list(islice(may_go, self._limit)):
            if (record := record_of(message)) is not None:
                size += len(record)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(message)
        gone = set(batch)
        self.unanswered = batch
        self.waiting = [message for message in self.waiting if message not in gone]
        self._see_due()
        return batch

    def stored(self) -> Sequence[Waiting]:
        """Ends the batch, whose transaction has committed, and returns the batch."""
        done, self.unanswered = self.unanswered, ()
        self._pause, self._limit = self._pace.pause, min(self._pace.most, 2 * self._limit)
        for message in done:
            message.stored = True
            self.from_home -= message.source is None
        return done

    def aborted(self, refused: Collection[int], now: float) -> Sequence[Waiting]:
        """Takes back the aborted batch, and returns it; `refused`: the numbers of records that can't be written now."""
        batch, self.unanswered = self.unanswered, ()
        pace, first, longest = self._pace, REFUSED, LONGEST_REFUSED
        if not refused:
            self._not_before = now + self._pause
            self._limit = max(1, len(batch) // 2)
            if len(batch) == 1:
                self._pause = min(pace.longest_pause, 2 * self._pause)
                refused, first, longest = (0,), 2 * pace.pause, pace.longest_pause
        for at in refused:
            batch[at].refusals += 1
            batch[at].not_before = now + min(longest, first * 2.0 ** min(batch[at].refusals - 1, 30))
        again = [message for at, message in enumerate(batch) if at not in refused]
        self.waiting = [*again, *self.waiting, *(batch[at] for at in refused)]
        self._see_due()
        return batch

    def _see_due(self) -> None:
        self._due = min((max(each.leave_at, each.not_before) for each in self.waiting), default=NEVER)
