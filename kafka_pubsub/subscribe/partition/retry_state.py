"""The messages that wait in the retry partition of a partition, when they go, and the messages that move there.

Theory. `finished_runs` knows its finished messages, `parked_keys` which keys wait and where each stands, `bodies`
the bodies in memory, `moves` the moving messages, `next_move` which move comes next, `crash_suspects` which must not
start unnoted.
This file connects them, as `partition` connects what belongs to home; it shares `queues` and `offsets` with it.

Rules
1. The retry partition is read in order, from the log only: a record of our own counts as parked when it was read back.
   Until then its origin *moves*, and blocks its key.
2. A key is parked as long as it has a line in `parked_keys`; `queues` looks there and hands out none of its records.
3. I6: what waits in home behind a parked or slow message is moved behind it when it outgrows its bound.
4. A record that can't be read goes to the dead letters unchanged. Without dead letters it stays unfinished, and is
   reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.subscribe.formats.record import RETRY_HEADER, RetryInfo, RetryRecord, Why, encode
from kafka_pubsub.subscribe.partition.body_cache import Bodies
from kafka_pubsub.subscribe.partition.copies import Copies
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.effects import Announce, News
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.followers import Followers
from kafka_pubsub.subscribe.partition.key_line import NEVER, Entry, parts_of
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.log_side import LogSide
from kafka_pubsub.subscribe.partition.moves import DEAD_LETTERS, MOVES, PATIENCE, DeadLetter, Move, MoveQueue
from kafka_pubsub.subscribe.partition.next_move import NextMoves
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.origin_check import OriginCheck
from kafka_pubsub.subscribe.partition.outage import Outage
from kafka_pubsub.subscribe.partition.parked_keys import ParkedKeys, Standing
from kafka_pubsub.subscribe.partition.settings import BACKLOG, BACKLOG_BYTES, Found, Rules

__all__ = ["RetryState"]

_record_of = attrgetter("record")
_NO_HEADER: Sequence[Header] = (("", None),)
#: Bodies of a key that are read ahead when its messages become due.
AHEAD = 64


class RetryState:
    """The state of the retry partition that belongs to a partition."""

    def __init__(
        self,
        start: Found,
        rules: Rules,
        jitter: Callable[[], float],
        queues: KeyQueues,
        offsets: Offsets,
        active: Collection[Lease],
        turn: TrialLock,
    ) -> None:
        self._rules = rules
        self._queues = queues
        self._offsets = offsets
        begun = start.retry
        self.finished_runs = FinishedRuns(begun.position, begun.known, begun.in_checkpoint, begun.read)
        self.home = LogSide(start.home, offsets, active, turn, retry=False)
        self.retry = LogSide(begun, self.finished_runs, active, turn, retry=True)
        self.origins = OriginCheck(start, offsets)
        self.parking = ParkedKeys()
        self.copies = Copies(start, offsets, self.parking, ordered=rules.ordered)
        self.followers = Followers()
        queues.parked, queues.stops = self.parking.lines, self.followers.read
        self.bodies = Bodies()
        self.moves = MoveQueue[Move](MOVES)
        self.dead_letters = MoveQueue[DeadLetter](DEAD_LETTERS)
        self.outage = Outage()
        self.schedules = NextMoves(start, rules, jitter, self.outage)
        #: Due messages without a key: those whose bodies are in memory, and those whose bodies are being read.
        self.loose: deque[tuple[Entry, RetryRecord]] = deque()
        self.loose_wanted: dict[int, Entry] = {}
        #: Moves with a key, by their encoded header, until their records were read back.
        self.transit: dict[bytes, Move] = {}
        #: Unreadable records that aren't finished; the bodies of the first of them are in memory.
        self.unreadable: dict[int, StoredRecord | None] = {}
        #: Requests to release or drop a waiting message, by their offsets.
        self.releasing: dict[int, RetryRecord] = {}
        #: Whether the retry partition was read up to its end at the assignment.
        self.caught_up = False
        #: News for the client.
        self.news: list[Announce] = []

    def settle_everybody(self, now: float) -> None:
        """Settles all keys: everything that waits has been read."""
        self.caught_up = True
        self.finish([entry.offset for entry in self.copies.take_outdated()])
        self.settle_all(list(self.parking.lines), now)

    def finish(self, offsets: Collection[int]) -> None:
        """Finishes these records of the retry partition: no body of them is needed, and none is a suspect."""
        self.finished_runs.finish_all(offsets)
        self.retry.suspects.finished(offsets)
        for offset in offsets:
            self.bodies.forget(offset)

    @property
    def ready(self) -> bool:
        """Whether a parked message may be handed out."""
        return bool(self.loose) or (bool(self.parking.lines) and self.parking.first() is not None)

    @property
    def loose_may_go(self) -> bool:
        """Whether messages without a key may go: those that home still has must be known as copies first."""
        return self.caught_up and self.copies.known

    def lacks_slow(self, is_slow: Callable[[Lease, float], bool], now: float) -> bool:
        """Returns whether a callback keeps a message for long that no log names."""
        return any(side.lacks_slow(is_slow, now) for side in (self.home, self.retry))

    def key(self, record: Record | StoredRecord) -> bytes | None:
        """Returns the key that is blocked while the record waits; None: no key is."""
        return record.key() if self._rules.ordered else None

    def read_back(self, record: StoredRecord) -> tuple[RetryRecord, bytes] | None:
        """Returns the message and its key if the record is a move of ours, read back: its header needn't be decoded.

        The key is the object that the index has already: each record would otherwise keep a copy.
        """
        name, value = (record.headers() or _NO_HEADER)[-1]
        move = self.transit.pop(value, None) if name == RETRY_HEADER and value is not None else None
        if move is None or move.key is None or not isinstance(move.info, RetryInfo):
            return None
        move.read_back = True
        if move.stored:
            self.parking.arrives(move.key, move.origin)
        return self.origins.own(record, move.info), move.key

    def park(self, key: bytes) -> None:
        """Parks the key: a message of the key is moving into the retry partition, or has been read there."""
        if key not in self.parking.lines:
            self._queues.park(key)
            self.parking.lines[key] = b""

    # Settling keys

    def settle(self, key: bytes, now: float) -> None:
        """Finds out where a parked key stands, unless a lease runner has the key."""
        lines = self.parking.lines
        if key not in lines:
            return
        if queue := self._queues.queues.get(key):
            self.parking.backlogged.setdefault(key, now)
        if key in self._queues.blocked:
            return
        home = queue[0].offset() if queue else None
        held = home in self.followers.read
        standing = self.parking.settle(key, home, self._offsets.position, now, held=held)
        if standing is Standing.GONE:
            self._queues.unpark(key)
        elif standing is Standing.HOME and queue and held and not self.followers.hold(key, queue[0], now):
            self.settle(key, now)
        elif standing is Standing.NEXT:
            front = lines.front(key)
            if front is not None and self.schedules.is_spent(*parts_of(front[3])):
                lines.drop_first(key)
                self.parking.departs(key, front[0])
                self.dead_letters.add(DeadLetter(front[1], front[0], key))
            elif front is not None and (body := self.bodies.kept.get(front[1])) is not None:
                if not self.followers.hold(key, body, now):
                    self.parking.may_go(key, front[0])
            else:
                self._read_ahead(key)

    def _read_ahead(self, key: bytes) -> None:
        for at in range(AHEAD):
            entry = self.parking.lines.peek(key, at)
            if entry is None or (at and not entry.never_failed):
                return
            self.bodies.want(entry.offset, key)

    def settle_all(self, keys: Iterable[bytes], now: float) -> None:
        """Settles several keys."""
        for key in keys:
            self.settle(key, now)

    def home_came(self, records: Sequence[Record], now: float) -> None:
        """Settles parked keys after home was read on: they may be past their origin, or their backlog too long."""
        lines = self.parking.lines
        self.settle_all(self.parking.passed(self._offsets.position), now)
        for key in {key: None for record in records if (key := record.key()) is not None and key in lines}:
            if self.relieve(key, now):
                continue
            if self.parking.behind:
                self.settle(key, now)
            else:  # the new records are later than all that waits or moves: the key's standing doesn't change
                self.parking.backlogged.setdefault(key, now)

    def relieve(self, key: bytes, now: float) -> bool:
        """Moves what waits in home behind the key's slow or parked message, if it outgrew its bound."""
        queue = self._queues.queues.get(key, ())
        if len(queue) <= BACKLOG and sum(map(len, queue)) <= BACKLOG_BYTES:
            return False
        self.evacuate(key, len(queue), now, leave_at=now + PATIENCE)
        return True

    def evacuate(self, key: bytes, limit: int, now: float, *, leave_at: float = 0.0) -> None:
        """Moves up to `limit` of the key's waiting messages into the retry partition, the oldest first."""
        self.park(key)
        for record in self._queues.take_from(key, limit, NEVER):
            self.followers.read.pop(record.offset(), None)
            move = self.schedules.waited(record, key)
            move.leave_at = leave_at
            self.depart(move)
        self.settle(key, now)

    def release(self, record: RetryRecord, now: float, *, drop: bool = False) -> Move | DeadLetter | None:
        """Moves a message that waits, so that it may go at once; `drop`: dead-letters it. None: a callback has it."""
        touched: dict[bytes, None] = {}
        if not self._leaves(record, touched, now):
            return None
        key = self.key(record)
        left: Move | DeadLetter
        if drop:
            move = self.schedules.dropped(record, key, now)
            left = DeadLetter(record.retry_offset, record.offset(), key, move)
            self.dead_letters.add(left)
            if key is not None:
                self.parking.departs(key, left.origin)
        else:
            left = self.schedules.released(record, key, now)
            self.depart(left)
        self.settle_all(touched, now)
        return left

    def _leaves(self, record: RetryRecord, touched: dict[bytes, None], now: float) -> bool:
        """Takes a parked message out of the index; returns False if a lease runner has the message."""
        key, entry = self.key(record), self.schedules.entry(record.info, record.retry_offset, now)
        self.bodies.forget(entry.offset)
        if key is None:
            return self._leaves_loose(entry)
        lines = self.parking.lines
        if lines.find(key, entry.origin, entry.offset) is None:
            return False
        lines.remove(key, entry)
        touched[key] = None
        return True

    def _leaves_loose(self, entry: Entry) -> bool:
        rest = deque(each for each in self.loose if each[0].offset != entry.offset)
        if len(rest) == len(self.loose):
            return self.parking.loose.remove(entry)
        self.loose = rest
        return True

    # Moves

    def dead_letter_unreadable(self, offset: int, record: StoredRecord, now: float) -> None:
        """Queues an unreadable record for the dead letters, unchanged."""
        del self.unreadable[offset]
        move = self.schedules.unreadable(record, self.origins.flaw(record), now)
        self.dead_letters.add(DeadLetter(offset, offset, None, move))

    def depart(self, move: Move) -> None:
        """Adds a move: a message leaves its place."""
        self.moves.add(move)
        if move.key is not None:
            self.park(move.key)
            self.parking.departs(move.key, move.origin)

    def fail(
        self, record: Record, key: bytes | None, why: Why, delay: float | None, error: str, now: float
    ) -> None:
        """Moves a message whose delivery failed."""
        self.depart(self.schedules.failed(record, key, why, now, delay=delay, error=error))
        if key is not None and self._queues.queues.get(key):
            self.relieve(key, now)  # records that were read before the failure

    def crashed(self, record: Record, now: float) -> None:
        """Moves a message that killed its process."""
        key = self.key(record)
        self.depart(self.schedules.crashed(record, key, now))
        if key is not None:
            self.settle(key, now)

    def load(self, now: float, *, early: bool = False) -> Sequence[Move]:
        """Returns the next moves to send; `early`: also moves that would wait for others."""
        batch = self.moves.load(now, _record_of, early=early)
        for move in batch:
            if move.key is not None and isinstance(move.info, RetryInfo):
                move.said = encode(move.info)
                self.transit[move.said] = move
        return batch

    def stored(self, now: float) -> None:
        """Finishes the sources of the moves that were stored."""
        touched: dict[bytes, None] = {}
        moves = self.moves.stored()
        fresh = [move for move in moves if move.source is None]
        self._offsets.finish([move.record for move in fresh])
        self.home.suspects.finished([move.origin for move in fresh])
        self.finish([move.source for move in moves if move.source is not None])
        for move in moves:
            self._tell(move)
            if move.key is not None and move.read_back:
                self.parking.arrives(move.key, move.origin)
                touched[move.key] = None
            elif move.key is not None:
                move.let_go()
        self.settle_all(touched, now)

    def _tell(self, move: Move) -> None:
        record, why = move.record, move.info.why if isinstance(move.info, RetryInfo) else None
        if why is Why.EXHAUSTED and not (isinstance(record, RetryRecord) and record.info.why is why):
            self.news.append(Announce(News.PARKED, message=record))

    def aborted(self, refused: Mapping[int, str], now: float) -> None:
        """Takes back the moves of an aborted transaction."""
        unanswered = self.moves.unanswered
        # The records behind the moves were the checkpoint's.
        refused = {at: reason for at, reason in refused.items() if at < len(unanswered)}
        for move in unanswered:
            self.transit.pop(move.said, None)
        for at, reason in refused.items():
            self.news.append(Announce(News.REFUSED, reason, unanswered[at].record))
        self.moves.aborted(refused, now)
