"""One partition of a subscription: the state machine that decides, and the only entry to the core.

    handle(event, now) -> effects      one call for each batch
    wakeup_at() -> time or None        when to call again with a Tick; changes nothing
    check()                            raises InvariantViolated if a promise is broken

Theory. Records come in by offset and queue up by key (`key_queues`). When the shell can take work, keys that
nobody holds are leased: one holder for each, which takes the key's records one by one (`leases`). Finished
records are booked (`offsets`) and committed as a position plus a map of what is finished above it (`ack_map`).
What isn't acked waits in its place and comes again (`redelivery`).

Rules
1. I1: a key is with one holder at a time, and comes back only when that holder's handler has ended.
2. I2: what is committed is `offsets.committable`, never more; the map adds what is finished above it.
3. I3: a received record is in one of: waiting, leased, backing off, finished.
4. I4: a verdict counts only while its lease is active.
5. I5: a record is handed over only if the map would still fit whatever finishes next. The record at the
   committable position is always allowed: finishing it only shortens the map.
6. One commit in flight. A partition that was revoked begins nothing, but keeps its books: it may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pubsub.core import ack_map, inline
from kafka_pubsub.core.checks import check
from kafka_pubsub.core.commits import Commits
from kafka_pubsub.core.effects import Deliver, Effect, Stale, Stop, Withdraw
from kafka_pubsub.core.events import (
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Extended,
    Fetched,
    Lost,
    Passed,
    Progressed,
    Record,
    Release,
    Released,
    Returned,
    Revoked,
    Settled,
    Settlement,
    Tick,
    Verdict,
)
from kafka_pubsub.core.key_queues import KeyQueues
from kafka_pubsub.core.leases import Lease, Leases, LeaseState
from kafka_pubsub.core.offsets import Offsets
from kafka_pubsub.core.redelivery import Waiting
from kafka_pubsub.core.rules import HANDED, RECORD_OVERHEAD, SHORTEST_RUN, Rules, Start

__all__ = ["Partition"]


class Partition:
    """One partition under one ownership (epoch)."""

    def __init__(self, start: Start, rules: Rules, jitter: Callable[[], float]) -> None:
        self.number = start.number
        self.epoch = start.epoch
        self._rules = rules
        self._jitter = jitter
        self.offsets = Offsets(start.position, start.known)
        self.commits = Commits(self.offsets, start.writer, start.stored)
        self.queues = KeyQueues(ordered=rules.ordered)
        self.leases = Leases()
        self.waiting = Waiting()
        #: Records finished so far.
        self.finished = 0
        for key in start.held_back:
            self.queues.block(key)
        #: False from revoke on: nothing is begun any more.
        self.open = True
        self._handlers: dict[type, Callable[..., Sequence[Effect]]] = {
            Fetched: self._fetched,
            Passed: self._passed,
            Released: self._released,
            Progressed: self._progressed,
            Settled: self._settled,
            Extended: self._extended,
            Demand: self._demand,
            Ended: self._ended,
            Tick: self._tick,
            CommitAnswered: self._commit_answered,
            Revoked: self._revoked,
            Returned: self._returned,
            Lost: self._lost,
        }

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Decides what to do about one batch of what happened."""
        return self._handlers[type(event)](event, now)

    def wakeup_at(self) -> float | None:
        """When something becomes due by itself."""
        times = [self.leases.next_deadline(), self.waiting.next_due()]
        if self.open:
            times.append(self.commits.due_at())
        known = [time for time in times if time is not None]
        return min(known) if known else None

    @property
    def buffered(self) -> int:
        """Bytes that the received and unfinished records take."""
        return self.offsets.size + RECORD_OVERHEAD * len(self.offsets.unfinished)

    @property
    def deliverable(self) -> bool:
        """Whether a `Demand` might be answered with leases."""
        return self.open and bool(self.queues.ready or self.queues.loose)

    # What comes in

    def _fetched(self, event: Fetched, now: float) -> Sequence[Effect]:
        before = self.offsets.committable
        news = self.offsets.receive(event.records)
        lease = self._inline(news) if event.inline else None
        if lease is None:
            self.queues.add(news)
        if self.offsets.committable != before:
            self.commits.dirty = True
        return () if lease is None else (Deliver([lease]),)

    def _inline(self, news: Sequence[Record]) -> Lease | None:
        """The news as one lease (`inline`), or None if they have to queue."""
        busy = self.queues.queues
        free, queued = inline.apart(news, busy) if busy else (news, ())
        if not free or not self.open or self._room() < len(free):
            return None
        self.queues.add(queued)
        lease = Lease(self.number, self.epoch, None, free, 1)
        self.leases.open(lease)
        return lease

    def _passed(self, event: Passed, now: float) -> Sequence[Effect]:
        """An inline lease has ended, or its current record goes on as a lease like any other."""
        lease, acked = event.lease, inline.finished(event)
        if lease.state is LeaseState.OVER or lease.epoch != self.epoch:
            return (Stale(len(acked)),)
        rest = lease.records[event.reached :]
        if event.current:
            self.leases.narrow(lease, rest[0], self._key(rest[0]))
            self._block(lease.key)
            rest = rest[1:]
        else:
            self.leases.close(lease)
        if acked:
            self._book(acked)
        for release in event.left:
            self.leases.open(release.lease)
            self._block(release.lease.key)
        self.queues.add([*event.skipped, *rest])
        for release in event.left:
            self._release(release, now)
        return ()

    # What goes out

    def _demand(self, event: Demand, now: float) -> Sequence[Effect]:
        leases: list[Lease] = []
        if not self.open:
            return ()
        queues, room = self.queues, self._room()
        run = self._run(event)
        while len(leases) < event.limit:
            if room <= 0 and queues.oldest() != self.offsets.committable:
                break
            records = queues.take(max(1, min(run, room)))
            if not records:
                break
            leases.append(self._lease(records))
            room -= len(records)
        return (Deliver(leases),) if leases else ()

    def _room(self) -> int:
        """How many more records may be handed over so that the map fits whatever finishes (rule 5)."""
        return self.offsets.room(self.leases.handed, ack_map.most_runs(self.offsets.span))

    def _run(self, event: Demand) -> int:
        """How long a run may be: short where many keys wait, so that they go forward together."""
        queues = self.queues
        if event.spread and len(queues.ready) + len(queues.loose) > 1:
            return 1
        return min(event.run, max(SHORTEST_RUN, HANDED // (len(queues.queues) + 1)))

    def _lease(self, records: Sequence[Record]) -> Lease:
        attempts = self.waiting.attempts
        attempt = attempts.get(records[0].offset(), 1) if attempts else 1
        lease = Lease(self.number, self.epoch, self._key(records[0]), records, attempt)
        self.leases.open(lease)
        return lease

    def _key(self, record: Record) -> bytes | None:
        return record.key() if self._rules.ordered else None

    # What holders say

    def _released(self, event: Released, now: float) -> Sequence[Effect]:
        stale = 0
        whole: list[Lease] = []
        for release in event.releases:
            lease = release.lease
            if lease.state is LeaseState.OVER or lease.epoch != self.epoch:
                stale += max(0, release.done - lease.done)  # letting go of what is over is no verdict
            elif release.verdict is Verdict.FINISHED and lease.state is LeaseState.WALKING:
                whole.append(lease)
            else:
                self._release(release, now)
        if whole:
            self._finish_whole(whole)
        return (Stale(stale),) if stale else ()

    def _finish_whole(self, leases: Sequence[Lease]) -> None:
        """The hot path: holders that took every record, all at once."""
        self._book(self.leases.close_whole(leases))
        self.queues.unblock_all([lease.key for lease in leases])

    def _release(self, release: Release, now: float) -> None:
        lease, verdict = release.lease, release.verdict
        self._finish(lease, release.done)
        if lease.done == len(lease.records):
            self.leases.close(lease)
            self._unblock(lease.key)
        elif verdict is Verdict.UNTOUCHED:  # expired or not: nobody has seen this record
            self.queues.put_back(lease.key, self.leases.close(lease))
            self._unblock(lease.key)
        elif lease.state is LeaseState.EXPIRED:
            self._again(lease, None, now)
        elif verdict is Verdict.KEPT:
            rest = self.leases.keep(lease, self._kept_until(lease, now))
            self.queues.put_back(lease.key, rest)
            if lease.early is not None and lease.early.done == lease.done:
                self._settle(lease.early, now)
        else:
            self._again(lease, release.delay, now)

    def _kept_until(self, lease: Lease, now: float) -> float:
        return now + self._rules.ack_deadline if lease.extended is None else lease.extended

    def _progressed(self, event: Progressed, now: float) -> Sequence[Effect]:
        allowed = max(self._rules.ack_deadline, self._rules.max_extension)
        for lease, done, started in event.steps:
            if lease.state is not LeaseState.WALKING or lease.epoch != self.epoch:
                continue
            if done > lease.done:
                self._finish(lease, done)
            if lease.extended is None and lease.done == done < len(lease.records):
                self.leases.set_deadline(lease, started + allowed)
        return ()

    def _settled(self, event: Settled, now: float) -> Sequence[Effect]:
        stale = 0
        over: list[Lease] = []
        for settlement in event.settlements:
            lease = settlement.lease
            if lease.state is LeaseState.WALKING and settlement.done >= lease.done:
                lease.early = settlement
            elif lease.state is LeaseState.KEPT and settlement.done == lease.done:
                self._settle(settlement, now)
                over.append(lease)
            elif settlement.done >= lease.done:  # else its release has told of the same ack already
                stale += 1
        effects: list[Effect] = [Withdraw(over)] if over else []
        return [*effects, Stale(stale)] if stale else effects

    def _settle(self, settlement: Settlement, now: float) -> None:
        lease = settlement.lease
        if settlement.acked:
            self._finish(lease, lease.done + 1)
            self.leases.close(lease)
            self._unblock(lease.key)
        else:
            self._again(lease, settlement.delay, now)

    def _extended(self, event: Extended, now: float) -> Sequence[Effect]:
        lease = event.lease
        if lease.state not in (LeaseState.WALKING, LeaseState.KEPT) or lease.epoch != self.epoch:
            return (Stale(1),)
        if event.done < lease.done:
            return (Stale(1),)
        self._finish(lease, event.done)
        lease.extended = now + event.seconds
        self.leases.set_deadline(lease, lease.extended)
        return ()

    def _ended(self, event: Ended, now: float) -> Sequence[Effect]:
        self.queues.unblock_all(event.keys)
        return ()

    def _finish(self, lease: Lease, done: int) -> None:
        news = self.leases.advance(lease, done)
        if news:
            self._book(news)

    def _book(self, news: Sequence[Record]) -> None:
        self.offsets.finish(news)
        self.finished += len(news)
        self.commits.dirty = True
        if self.waiting.attempts:
            for record in news:
                self.waiting.attempts.pop(record.offset(), None)

    def _again(self, lease: Lease, delay: float | None, now: float) -> None:
        """The current record comes again, in its place; the ones behind it go back to the queue."""
        record, *rest = self.leases.close(lease)
        # followers of a first delivery have never been delivered: the attempt is the current record's own
        attempt = (lease.attempt if lease.done == 0 else 1) + 1
        wait = self._rules.backoff.wait(attempt, self._jitter()) if delay is None else delay
        self.queues.put_back(lease.key, rest)
        self.waiting.add(record, lease.key, attempt, now + wait)

    def _block(self, key: bytes | None) -> None:
        if key is not None:
            self.queues.block(key)

    def _unblock(self, key: bytes | None) -> None:
        if key is not None:
            self.queues.unblock(key)

    # Time, commits and ownership

    def _tick(self, event: Tick, now: float) -> Sequence[Effect]:
        effects: list[Effect] = []
        expired = self.leases.due(now)
        for lease in expired:
            if lease.state is LeaseState.KEPT:
                self._again(lease, None, now)
            else:
                lease.state = LeaseState.EXPIRED
        if expired:
            effects.append(Withdraw(expired))
        for record, key in self.waiting.due(now):
            self.queues.put_back(key, [record])
            self._unblock(key)
        if self.open and self.commits.due(now):
            effects.append(self.commits.make(now))
        return effects

    def _commit_answered(self, event: CommitAnswered, now: float) -> Sequence[Effect]:
        self.commits.answered(accepted=event.accepted)
        return ()

    def _revoked(self, event: Revoked, now: float) -> Sequence[Effect]:
        """The shell has seen every commit answered before it says so; this one is the last word."""
        self.open = False
        walking = [lease for lease in self.leases.active if lease.state is LeaseState.WALKING]
        last = self.commits.last_word()
        return [Stop(walking)] if last is None else [Stop(walking), last]

    def _returned(self, event: Returned, now: float) -> Sequence[Effect]:
        self.open = True
        self.commits.dirty = True
        return ()

    def _lost(self, event: Lost, now: float) -> Sequence[Effect]:
        self.open = False
        active = list(self.leases.active)
        for lease in active:
            self.leases.close(lease)
        return (Withdraw(active),) if active else ()

    def check(self) -> None:
        """Raises `InvariantViolated` if a promise is broken."""
        check(self)
