"""One partition of a subscription: the state machine that decides, and the only entry to the core.

    handle(event, now) -> effects      one call for each batch
    wakeup_at() -> time or None        when to call again with a Tick; changes nothing
    check()                            raises InvariantViolated if an invariant is broken

Theory. Records come in by offset and queue up by key (`key_queues`). When the client can take work, keys that no lease
runner has are leased: one lease runner for each, which takes the key's records one by one (`leases`,
`lease_reports`). Finished records are noted (`offsets`) and committed as a position, with metadata that lists what is
finished above it (`ack_map`). What isn't acked moves to the retry partition and waits there (`retry_state`).

Rules
1. I1: a key is with one lease runner at a time, and is free again only when that lease runner's callback has ended.
2. I2: what is committed is `offsets.committable`, never more; the metadata lists what is finished above it.
3. I3: a received record is in one of these places: waiting, leased, parked, moving, finished.
4. I4: a lease report counts only while its lease is active.
5. I5: whatever is finished can be committed, if need be with a checkpoint (`commits`).
6. One commit is unanswered at a time, plain or in a transaction. A revoked partition begins nothing, but keeps what it
   knows as finished: it may come back. If a transaction's outcome is unknown, the partition is over and starts again
   from what is committed.
7. Nothing begins before the retry partition was read up to its high watermark, nor before the first commit has noted
   this owner in the log: else a message that kills its process at once would leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.durable_acks import Durability
from kafka_pubsub.subscribe.partition.effects import Deliver, Effect, Restart, Stale, Stop, Withdraw
from kafka_pubsub.subscribe.partition.events import (
    Awaited,
    Bodies,
    CommitAnswered,
    Demand,
    Ended,
    Event,
    Extended,
    Fetched,
    Followed,
    LeasesReported,
    Lost,
    MovesAnswered,
    Passed,
    Progressed,
    ReadUpTo,
    RetryCaughtUp,
    RetryFetched,
    Returned,
    Revoked,
    Settled,
    Tick,
    Written,
)
from kafka_pubsub.subscribe.partition.invariants import check
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.lease_outcomes import RecordOutcomes
from kafka_pubsub.subscribe.partition.lease_reports import LeaseReports
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import DUE, HANDED, RECORD_OVERHEAD, SHORTEST_RUN, Rules, Start

__all__ = ["Partition"]


class Partition:
    """One partition under one ownership (epoch)."""

    def __init__(
        self, start: Start, rules: Rules, jitter: Callable[[], float], turn: TrialLock | None = None
    ) -> None:
        self.number = start.number
        self.epoch = start.epoch
        self._rules = rules
        self.offsets = Offsets(start.position, start.known, start.retry.main_read)
        self.queues = KeyQueues(ordered=rules.ordered)
        self.leases = Leases()
        self.retry_partition = RetryPartition(
            start, rules, jitter, turn or TrialLock(), self.queues, self.offsets, self.leases
        )
        self.commits = self.retry_partition.commits
        self.places = RecordOutcomes(
            self.offsets, self.queues, self.leases, self.commits, self.retry_partition
        )
        self.outcomes = LeaseReports(self.leases, rules, self.epoch, self.places)
        self.acks = Durability(self.leases, self.outcomes, self.commits, prompt=rules.exactly_once)
        for key in start.held_back:
            self.queues.block(key)
        #: False from a revoke on: nothing is begun any more.
        self.open = True
        self._callbacks = self._table()

    def _table(self) -> dict[type, Callable[..., Sequence[Effect]]]:
        return {
            Fetched: self._fetched,
            ReadUpTo: self.places.read_up_to,
            Passed: self._passed,
            LeasesReported: self.outcomes.released,
            Progressed: self.outcomes.progressed,
            Settled: self.outcomes.settled,
            Awaited: self.acks.awaited,
            Extended: self.outcomes.extended,
            Demand: self._demand,
            Followed: self._followed,
            Ended: self._ended,
            Tick: self._tick,
            CommitAnswered: self._commit_answered,
            Revoked: self._revoked,
            Returned: self._returned,
            Lost: self._lost,
            MovesAnswered: self._moves_answered,
            RetryFetched: self.retry_partition.fetched,
            RetryCaughtUp: self.retry_partition.caught_up,
            Bodies: self.retry_partition.bodies,
            Written: self.retry_partition.dead_lettering.answered,
        }

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Decides what to do about one batch of events."""
        self.places.now = now
        effects = self._callbacks[type(event)](event, now)
        return self.acks.after(event, effects, now) if self.acks.busy else effects

    def wakeup_at(self) -> float | None:
        """Returns when something becomes due because time has passed."""
        times = [self.leases.next_deadline()]
        if self.open:
            times += (self.commits.due_at(), *self.retry_partition.wakeup_at())
        return min((time for time in times if time is not None), default=None)

    @property
    def finished(self) -> int:
        """The number of records finished so far."""
        return self.places.finished

    @property
    def buffered(self) -> int:
        """The bytes that the received and unfinished records take."""
        return self.offsets.size + RECORD_OVERHEAD * len(self.offsets.unfinished)

    @property
    def deliverable(self) -> bool:
        """Whether a `Demand` might be answered with leases."""
        if not self.open or not self.retry_partition.may_begin:
            return False
        return bool(self.queues.ready or self.queues.loose) or self.retry_partition.lending.ready

    def _fetched(self, event: Fetched, now: float) -> Sequence[Effect]:
        before = self.offsets.committable
        news = self.retry_partition.came(self.offsets.receive(event.records, event.epoch), now)
        lease = None
        if event.inline and self.retry_partition.unhindered:
            lease, news = self._inline(news)
        self.places.line_up(news, event.after)
        if self.offsets.committable != before:
            self.commits.dirty = True
        return () if lease is None else (Deliver([lease]),)

    def _followed(self, event: Followed, now: float) -> Sequence[Effect]:
        self.retry_partition.retries.settle_all(event.keys, now)
        return ()

    def _inline(self, news: Sequence[Record]) -> tuple[Lease | None, Sequence[Record]]:
        """Returns one lease of the new records (`inline_lease`), if any may be taken, and those that have to queue."""
        busy, parked = self.queues.queues, self.queues.parked
        free, queued = inline_lease.apart(news, busy, parked) if busy or parked else (news, ())
        if not free or not self.open:
            return None, news
        return self.leases.open_inline(self.number, self.epoch, free), queued

    def _passed(self, event: Passed, now: float) -> Sequence[Effect]:
        """Ends an inline lease, or lets its current record go on as a lease like any other."""
        lease, acked = event.lease, inline_lease.finished(event)
        if lease.state is LeaseState.OVER or lease.epoch != self.epoch:
            return (Stale(len(acked)),)
        rest = lease.records[event.reached :]
        keys, kept = lease.keys, [release.lease for release in event.left]
        if event.current:
            self.leases.narrow(lease, rest[0], self._key(rest[0]))
            kept.append(lease)
            rest = rest[1:]
        else:
            self.leases.end_inline_lease(lease, event.reached)
        for release in event.left:
            self.leases.open(release.lease)
        rest = [*event.skipped, *rest]
        if keys:
            self.places.end_due(keys, {each.key for each in kept}, acked, event.nacked, rest)
        else:
            for each in kept:
                self._block(each.key)
            self.places.end_fresh(acked, event.nacked, rest, queued=lease.queued)
        for release in event.left:
            self.outcomes.release(release, now)
        return ()

    # Outgoing leases

    def _demand(self, event: Demand, now: float) -> Sequence[Effect]:
        if not self.open:
            return ()
        inline = event.inline and event.limit and self.retry_partition.unhindered
        effects = self._due(now) if inline and event.below is None else []
        event = event._replace(limit=event.limit - len(effects))
        leases: list[Lease] = []
        run = self._run(event)
        left = self._demand_with_care(event, leases, now)
        if inline and left == event.limit and event.below is not None and not self._rules.ordered:
            return self._inline_of_lane(event.run, event.below)
        for _ in range(left):
            if not (records := self.queues.take(run, event.below)):
                break
            leases.append(self._lease(records))
        if leases:
            effects.append(Deliver(leases))
        return effects

    def _inline_of_lane(self, most: int, below: int) -> list[Effect]:
        """Returns one inline lease of what waits in a lane without an order."""
        if not (records := self.queues.take_loose(most, below)):
            return []
        lease = self.leases.open_inline(self.number, self.epoch, records, queued=True)
        return [Deliver([lease], inline=True)]

    def _due(self, now: float) -> list[Effect]:
        """Returns one inline lease of due messages (`inline_lease`)."""
        records, keys = self.retry_partition.lending.gather(DUE, now)
        if not records:
            return []
        return [Deliver([self.leases.open_inline(self.number, self.epoch, records, keys)], inline=True)]

    def _demand_with_care(self, event: Demand, leases: list[Lease], now: float) -> int:
        """Leases what is parked, and what must not start unnoted; returns how many leases are still wanted."""
        retry_partition = self.retry_partition
        limit = retry_partition.limit(event.limit, now)
        taken = 0
        most = retry_partition.parked(limit)
        for each in retry_partition.lending.take(most, self._run(event), now, event.key):
            lease = self._lease(each.records)
            lease.entries = each.entries
            if each.entries is not None:
                lease.attempt = each.entries[0].attempt + each.entries[0].crashes
            taken += 1
            if retry_partition.admit(lease):
                leases.append(lease)
        suspects = retry_partition.retries.main_suspects
        while (
            taken < limit
            and retry_partition.careful(self.queues.oldest())
            and suspects.takes(self.queues.oldest())
        ):
            together = suspects.together(self.queues.oldest())
            if event.below is not None:
                together = min(together, event.run)
            if not (records := self.queues.take(together, event.below)):
                break
            retry_partition.admit(self._lease(records))
            taken += 1
        oldest = self.queues.oldest()
        if event.below is not None and oldest is not None and oldest >= event.below:
            oldest = None
        left = 0 if retry_partition.careful(oldest) else limit - taken
        if taken or (left and oldest is not None):
            retry_partition.retries.outage.began(now)
        return left

    def _run(self, event: Demand) -> int:
        """Returns how long a run may be: short where many keys wait, so that they go forward together."""
        queues = self.queues
        if event.spread and queues.ready_count + len(queues.loose) > 1:
            return 1
        return min(event.run, max(SHORTEST_RUN, HANDED // (len(queues.queues) + 1)))

    def _lease(self, records: Sequence[Record]) -> Lease:
        lease = Lease(self.number, self.epoch, self._key(records[0]), records, 1)
        self.leases.open(lease)
        self.places.hold_next(lease.key)
        return lease

    def _key(self, record: Record) -> bytes | None:
        return record.key() if self._rules.ordered else None

    def _block(self, key: bytes | None) -> None:
        if key is not None:
            self.queues.block(key)

    # Time, commits and ownership

    def _ended(self, event: Ended, now: float) -> Sequence[Effect]:
        self.places.free_keys(event.keys)
        return ()

    def _tick(self, event: Tick, now: float) -> Sequence[Effect]:
        effects = list(self.outcomes.expire(now))
        if self.open:
            self.retry_partition.tick(event, now)
            effects += self.retry_partition.send(now, closing=event.closing)
        return effects

    def _commit_answered(self, event: CommitAnswered, now: float) -> Sequence[Effect]:
        return self.retry_partition.answered(accepted=event.accepted)

    def _moves_answered(self, event: MovesAnswered, now: float) -> Sequence[Effect]:
        if self.commits.in_flight is None:
            return ()
        if event.ending is Ending.UNKNOWN:
            return [*self._lost(Lost(), now), Restart()]
        effects = list(self.retry_partition.take_moves_answered(event, now))
        if (
            not self.open
            and event.ending is Ending.ABORTED
            and (last := self.retry_partition.plain_final_commit())
        ):
            effects.append(last)  # it was the final commit of a revoked partition
        return effects

    def _revoked(self, event: Revoked, now: float) -> Sequence[Effect]:
        """Stops the partition with a final commit; the client has seen every other commit answered before."""
        self.open = False
        running = [lease for lease in self.leases.active if lease.state is LeaseState.RUNNING]
        for lease in self.retry_partition.unstarted():
            running.remove(lease)
            self.places.give_back(lease, self.leases.close(lease))
            self.places.free(lease)
        last = self.retry_partition.final_commit(now, closing=event.closing)
        return [Stop(running)] if last is None else [Stop(running), last]

    def _returned(self, event: Returned, now: float) -> Sequence[Effect]:
        self.open = True
        self.commits.dirty = True
        self.retry_partition.returned()
        return ()

    def _lost(self, event: Lost, now: float) -> Sequence[Effect]:
        self.open = False
        for lease in (active := list(self.leases.active)):
            self.leases.close(lease)
        self.retry_partition.close()
        self.acks.lost()
        return (Withdraw(active),) if active else ()

    def check(self) -> None:
        """Raises `InvariantViolated` if an invariant is broken."""
        check(self)
