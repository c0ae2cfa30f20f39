"""The work of a partition on its retry partition because time has passed: due messages, long backlogs, requests.

Rules
1. When the messages that wait behind parked ones outgrow their share of the window, they are moved behind these. But a
   key that goes on soon (`SOON`), or goes on already, is waited for. A moved message must be read back and blocks its
   key meanwhile, so that more of the key is moved: with a backlog and short backoffs everything would go that way, at a
   tenth of the speed. Nothing more is read then until the key has gone on.
2. When all that the partition may hold waits behind parked or slow messages, these messages move behind: else nothing
   more would be read, and every other key would stand still for their sake.
3. A request to release a parked message is finished after the message has moved; while the message moves for another
   reason, the request waits.
"""

from __future__ import annotations

from kafka_pubsub.subscribe.formats.record import RetryRecord, Why
from kafka_pubsub.subscribe.partition.effects import Announce, News
from kafka_pubsub.subscribe.partition.key_line import NEVER, Entry, passed
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState
from kafka_pubsub.subscribe.partition.moves import BATCH, DeadLetter, Move
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_state import RetryState
from kafka_pubsub.subscribe.partition.settings import BACKLOG, SLOW, Rules

__all__ = ["Maintenance"]

#: Unreadable records that are dead-lettered together.
UNREADABLE_AT_ONCE = 64
#: Messages of a partition that may wait in memory behind parked messages, of all keys together: two thirds of what
#: fetching stops at (`fetch_window.WINDOW`).
MOST_WAITING = 1000
#: Seconds between two looks at these messages, at least, and for each of their keys: two thousandths of a processor
#: for each partition, however many keys there are.
LOOK, LOOK_EACH = 0.05, 0.0001
#: Seconds within which a parked key goes on "soon": some times the shortest backoff and the transaction before it, and
#: not so long that other keys would miss their share of the window.
SOON = 0.5
#: Messages without a key that are read ahead when they are due.
LOOSE = 256


class Maintenance:
    """The maintenance of one partition, done at each tick."""

    def __init__(
        self,
        retries: RetryState,
        queues: KeyQueues,
        offsets: Offsets,
        leases: Leases,
        rules: Rules,
    ) -> None:
        self._retries = retries
        self._parking, self._bodies = retries.parking, retries.bodies
        self._suspects, self._home_suspects = retries.retry.suspects, retries.home.suspects
        self._queues = queues
        self._offsets = offsets
        self._leases = leases
        self._rules = rules
        # By the request's offset, the move that answers it. A message that fails fast may be parked again before the
        # next look, and must not be released twice for a single request.
        self._granted: dict[int, Move | DeadLetter] = {}
        self._waiting_look_at = 0.0

    def do(self, now: float, *, stuffed: bool = False) -> None:
        """Does all maintenance; `stuffed`: nothing more is read before messages leave."""
        retries = self._retries
        if self._parking.lines:
            for key in self._parking.due(now):
                retries.settle(key, now)
        if self._parking.loose.count:
            self._loose(now)
        if retries.outage.look(now):
            retries.news.append(Announce(News.OUTAGE if retries.outage.probing else News.RECOVERED))
        if retries.releasing:
            self._release(now)
        if retries.unreadable:
            self._dead_letter_unreadable(now)
        self._slow(now)
        if self.restless:
            self._move_waiting(now)
        elif stuffed and self._stands(now):
            self._thin_out(now)
        self._suspects.passed(retries.finished_runs.committable)
        self._home_suspects.passed(self._offsets.committable)

    @property
    def restless(self) -> bool:
        """Whether time alone may bring something to do, at no time that is known."""
        return bool(self._parking.backlogged) and self._waiting() > MOST_WAITING

    def _waiting(self) -> int:
        """Returns how many of home's messages are neither with a lease runner nor moving."""
        gone = self._leases.handed + self._retries.moves.from_home
        return len(self._offsets.unfinished) - gone

    def _loose(self, now: float) -> None:
        retries = self._retries
        room = LOOSE - len(retries.loose) - len(retries.loose_wanted)
        if room <= 0 or not retries.loose_may_go:
            return
        for entry in self._parking.loose.due(now, room):
            if retries.schedules.is_spent(entry.attempt, entry.crashes, entry.why):
                retries.dead_letters.add(DeadLetter(entry.offset, entry.origin, None))
                continue
            body = self._bodies.take(entry.offset)
            if body is not None:
                retries.loose.append((entry, body))
            else:
                retries.loose_wanted[entry.offset] = entry
                self._bodies.want(entry.offset)

    def _slow(self, now: float) -> None:
        """Relieves keys whose callback takes long, with a backlog that has outgrown its bound."""
        queues = self._queues.queues
        for lease in list(self._leases.active):
            key = lease.key
            if key is not None and len(queues.get(key, ())) > BACKLOG and self._takes_long(lease, now):
                self._retries.relieve(key, now)

    def _takes_long(self, lease: Lease, now: float) -> bool:
        return lease.state is LeaseState.EXPIRED or self.is_slow(lease, now)

    def is_slow(self, lease: Lease, now: float) -> bool:
        """Returns whether the current record has been with its callback, or with the user, for long."""
        if lease.deadline is None:
            return False
        allowed = max(self._rules.ack_deadline, self._rules.max_extension)
        patience = self._rules.ack_deadline if lease.state is LeaseState.KEPT else allowed
        return lease.extended is not None or now - (lease.deadline - patience) >= SLOW

    def _stands(self, now: float) -> bool:
        """Returns whether nothing can begin, and nothing is about to end (rule 2)."""
        retries, queues = self._retries, self._queues
        if queues.ready or queues.loose or retries.loose or self._parking.first() is not None:
            return False
        if not all(self._takes_long(lease, now) for lease in self._leases.active):
            return False
        return len(self._stuck(now)) == len(self._parking.backlogged)

    def _stuck(self, now: float) -> list[bytes]:
        """Returns parked keys with a backlog that don't go on soon: due later, or without an ack for that long."""
        queues, parking = self._queues.queues, self._parking
        for key in [key for key in parking.backlogged if not queues.get(key)]:
            del parking.backlogged[key]
        later, then, lines = passed(now + SOON), now - SOON, parking.lines
        return [
            key
            for key, since in parking.backlogged.items()
            if since <= then or ((front := lines.front(key)) is not None and front[2] > later)
        ]

    def _thin_out(self, now: float) -> None:
        """Moves half of the waiting messages, of the longest queues first."""
        queues = self._queues.queues
        left = min(BATCH, 1 + len(self._offsets.unfinished) // 2)
        for key in sorted(queues, key=lambda each: len(queues[each]), reverse=True):
            if left <= 0 or not queues[key]:
                return
            count = min(left, len(queues[key]))
            self._retries.evacuate(key, count, now)
            left -= count

    def _move_waiting(self, now: float) -> None:
        """Moves messages that wait behind parked messages, if they fill too much of the window that all keys share."""
        if now < self._waiting_look_at:
            return
        self._waiting_look_at = now + max(LOOK, LOOK_EACH * len(self._parking.backlogged))
        queues = self._queues.queues
        waiting = {key: len(queues[key]) for key in self._stuck(now)}
        left = min(BATCH, sum(waiting.values()) - MOST_WAITING)
        if left <= 0:
            return
        left = min(BATCH, left + MOST_WAITING // 4)
        for key in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if left <= 0:
                return
            count = min(left, waiting[key])
            self._retries.evacuate(key, count, now)
            left -= count

    def _dead_letter_unreadable(self, now: float) -> None:
        """Queues unreadable records for the dead letters, where there are any."""
        retries = self._retries
        if not self._rules.policy.max_attempts:
            return
        for offset in sorted(retries.unreadable)[:UNREADABLE_AT_ONCE]:
            record = retries.unreadable[offset]
            if record is None:
                self._bodies.want(offset)
            elif len(retries.dead_letters.waiting) < UNREADABLE_AT_ONCE:
                retries.dead_letter_unreadable(offset, record, now)

    def _release(self, now: float) -> None:
        for offset, request in list(self._retries.releasing.items()):
            granted = self._granted.get(offset)
            if granted is not None:
                if granted.stored:
                    self._finish_request(offset)
                continue
            key, origin = self._retries.key(request), request.offset()
            if key is not None and origin in self._parking.moving.get(key, ()):
                continue  # rule 3
            entry = self._asked_for(request, key)
            body = None if entry is None else self._bodies.kept.get(entry.offset)
            if entry is not None and body is None:
                self._bodies.want(entry.offset, key)
            elif isinstance(body, RetryRecord) and self._understood(request):
                move = self._retries.release(body, now, drop=request.info.why is Why.DROP)
                if move is not None:
                    self._granted[offset] = move
            else:
                self._finish_request(offset)

    def _finish_request(self, offset: int) -> None:
        self._granted.pop(offset, None)
        del self._retries.releasing[offset]
        self._retries.finished_runs.finish(offset)

    def _understood(self, request: RetryRecord) -> bool:
        """Returns whether the request can be met: without a policy there is nowhere to drop a message."""
        return request.info.why is not Why.DROP or bool(self._rules.policy.max_attempts)

    def _asked_for(self, request: RetryRecord, key: bytes | None) -> Entry | None:
        """Returns the waiting message that is to be released; only one that waits for ever can be dropped."""
        parking, origin = self._parking, request.offset()
        if key is None:
            entry = next((entry for entry in parking.loose if entry.origin == origin), None)
        else:
            entry = parking.lines.first_of(key, origin)
        if entry is not None and request.info.why is Why.DROP and entry.due != NEVER:
            return None
        return entry
