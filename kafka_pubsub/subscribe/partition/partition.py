"""A partition of a subscription: the state machine that decides, and the only entry to the core.

    handle(event, now) -> effects      a call for each batch
    wakeup_at() -> time or None        when to call again with a Tick; changes nothing
    check()                            raises InvariantViolated if an invariant is broken

Theory. Records come in by offset and queue up by key (`key_queues`). When the client can take work, keys that no lease
runner has are leased: a lease runner for each, which takes the key's records in turn (`leases`,
`lease_outcomes`). Finished records are noted (`offsets`) and committed as a position, with metadata that lists the
finished records above (`ack_map`). Records that aren't acked move to the retry partition and wait there
(`retry_state`).

Rules
1. I1: a key is with a single lease runner at a time, and is free again only when that lease runner's callback has
   ended.
2. I2: the committed position is `offsets.committable`, never more; the metadata lists the finished records above it.
3. I3: a received record is in one of these places: waiting, leased, parked, moving, finished.
4. I4: a lease report counts only while its lease is active.
5. I5: whatever is finished can be committed, if need be with a checkpoint (`commits`).
6. A single commit is unanswered at a time, plain or in a transaction. A revoked partition begins nothing, but keeps its
   finished records: it may come back. If a transaction's outcome is unknown, the partition is over and starts again
   from the committed state.
7. Nothing begins before the retry partition was read up to its high watermark, nor before the first commit has noted
   this owner in the log: else a message that kills its process at once would leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Ending, LogEnd
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.durable_acks import Durability
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    Deliver,
    Effect,
    Restart,
    Stale,
    Stop,
    Withdraw,
)
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
from kafka_pubsub.subscribe.partition.invariants import Parts, check
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues, Watch
from kafka_pubsub.subscribe.partition.lease_outcomes import LeaseReports, RecordOutcomes
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_partition import RetryPartition
from kafka_pubsub.subscribe.partition.settings import (
    DUE,
    HANDED,
    RECORD_OVERHEAD,
    SHORTEST_RUN,
    Names,
    Rules,
    Start,
)
from kafka_pubsub.subscribe.partition.views import KeyView, ParkedKey

__all__ = ["Partition"]


class Partition:
    """A partition under one ownership (epoch)."""

    def __init__(
        self, start: Start, rules: Rules, jitter: Callable[[], float], turn: TrialLock | None = None
    ) -> None:
        self.number = start.number
        self.epoch = start.epoch
        self._rules = rules
        home = start.found.home
        self._offsets = Offsets(home.position, home.known, home.in_checkpoint, home.read)
        self._queues = KeyQueues(ordered=rules.ordered)
        self._leases = Leases()
        self._retry_partition = RetryPartition(
            start, rules, jitter, turn or TrialLock(), self._queues, self._offsets, self._leases
        )
        self._commits, self._retries = self._retry_partition.commits, self._retry_partition.retries
        self._outcomes = RecordOutcomes(
            self._offsets, self._queues, self._leases, self._commits, self._retry_partition
        )
        self._reports = LeaseReports(self._leases, rules, self.epoch, self._outcomes)
        self._acks = Durability(self._leases, self._reports, self._commits, prompt=rules.exactly_once)
        for key in start.held_back:
            self._queues.block(key)
        #: False from a revoke on: nothing is begun any more.
        self.open = True
        self._handlers = self._table()

    def _table(self) -> dict[type, Callable[..., Sequence[Effect]]]:
        return {
            Fetched: self._fetched,
            ReadUpTo: self._outcomes.read_up_to,
            Passed: self._passed,
            LeasesReported: self._reports.released,
            Progressed: self._reports.progressed,
            Settled: self._reports.settled,
            Awaited: self._acks.awaited,
            Extended: self._reports.extended,
            Demand: self._demand,
            Followed: self._followed,
            Ended: self._ended,
            Tick: self._tick,
            CommitAnswered: self._commit_answered,
            Revoked: self._revoked,
            Returned: self._returned,
            Lost: self._lost,
            MovesAnswered: self._moves_answered,
            RetryFetched: self._retry_partition.fetched,
            RetryCaughtUp: self._retry_partition.caught_up,
            Bodies: self._retry_partition.bodies,
            Written: self._retry_partition.dead_lettering.answered,
        }

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Decides what to do about a batch of events."""
        self._outcomes.now = now
        effects = self._handlers[type(event)](event, now)
        return self._acks.after(event, effects, now) if self._acks.busy else effects

    def wakeup_at(self) -> float | None:
        """Returns when something becomes due because time has passed."""
        times = [self._leases.next_deadline()]
        if self.open:
            times += (self._commits.due_at(), *self._retry_partition.wakeup_at())
        return min((time for time in times if time is not None), default=None)

    # Its messages and its waits

    @property
    def active(self) -> Collection[Lease]:
        """The leases that aren't over."""
        return self._leases.active

    @property
    def handed(self) -> int:
        """The number of records that were handed over and aren't finished."""
        return self._leases.handed

    @property
    def position(self) -> int:
        """The next offset of home that wasn't received."""
        return self._offsets.position

    @property
    def retry_position(self) -> int:
        """The next offset of the retry partition that wasn't received."""
        return self._retries.finished_runs.position

    @property
    def read(self) -> LogEnd:
        """How far home was ever read."""
        return self._offsets.read

    @property
    def retry_read(self) -> LogEnd:
        """How far the retry partition was ever read."""
        return self._retries.finished_runs.read

    @property
    def retry_finished(self) -> bool:
        """Whether all that was read of the retry partition is finished."""
        return self.retry_position == self._retries.finished_runs.committable

    @property
    def checkpoint_at(self) -> int | None:
        """The offset of the checkpoint that the last accepted commit names; None: there is none."""
        named = self._commits.checkpoints.named
        return None if named is None else named.offset

    @property
    def stored(self) -> CommitBoth:
        """The last accepted commit, or the commit that was there at the beginning."""
        return self._commits.stored

    @property
    def in_flight(self) -> CommitBoth | None:
        """The commit that is unanswered; None: there is none."""
        return self._commits.in_flight

    @property
    def asking(self) -> bool:
        """Whether a request of any kind is unanswered."""
        retries = self._retries
        return bool(self.in_flight or retries.bodies.reading or retries.dead_letters.unanswered)

    @property
    def may_begin(self) -> bool:
        """Whether anything may be handed out."""
        return self.open and self._retry_partition.may_begin

    @property
    def caught_up(self) -> bool:
        """Whether the retry partition was read up to its end at the assignment."""
        return self._retries.caught_up

    @property
    def saves(self) -> bool:
        """Whether something is still to be stored before the final commit."""
        if not self._retry_partition.may_begin:
            return False
        return self._retry_partition.unsaved or self.in_flight is not None

    @property
    def restless(self) -> bool:
        """Whether a tick may do something that `wakeup_at` doesn't announce."""
        busy = self._leases.active or self._acks.busy or self._commits.in_flight is not None
        return bool(busy) or self._retry_partition.maintenance.restless

    @property
    def hurried(self) -> bool:
        """Whether callbacks wait for a commit."""
        return self._retry_partition.hurried

    @property
    def careful(self) -> bool:
        """Whether messages of home are noted in a commit before they start."""
        return self._retry_partition.careful_at_all

    @property
    def waiting_suspects(self) -> int:
        """The number of leases that wait for their trial, with no lease runner."""
        return self._retry_partition.waiting_suspects

    @property
    def wants_turn(self) -> bool:
        """Whether a suspect could be tried now, if the stream may start another message."""
        return self._retry_partition.wants_turn

    @property
    def tries(self) -> bool:
        """Whether a suspect is on trial."""
        return self._retry_partition.tries

    @property
    def finished(self) -> int:
        """The number of records finished so far."""
        return self._outcomes.finished

    @property
    def unfinished(self) -> int:
        """The number of records of home that were received and aren't finished."""
        return len(self._offsets.unfinished)

    @property
    def buffered(self) -> int:
        """The bytes that the received and unfinished records take."""
        return self._offsets.size + RECORD_OVERHEAD * len(self._offsets.unfinished)

    @property
    def deliverable(self) -> bool:
        """Whether a `Demand` might be answered with leases."""
        if not self.open or not self._retry_partition.may_begin:
            return False
        return bool(self._queues.ready or self._queues.loose) or self._retries.ready

    # Keys, for lanes and operators

    def follow(self, names: Names | None) -> None:
        """Asks these names from now on for the messages in other lanes for which messages wait."""
        self._retries.followers.ask(names, self.number)

    def watch(self, watch: Watch) -> list[Record]:
        """Reports to `watch` from now on which records come, go and come back; returns the waiting records."""
        self._queues.watch = watch
        return sorted(self._queues.waiting(), key=lambda record: record.offset())

    def unwatch(self, watch: Watch) -> None:
        """Reports to `watch` no more."""
        if self._queues.watch is watch:
            self._queues.watch = None

    @property
    def parked_ready(self) -> bool:
        """Whether a message may go that waits in the retry topic, or behind such a message."""
        return self._retries.ready

    @property
    def oldest(self) -> int | None:
        """The offset of home's oldest record that may go; None: none may."""
        return self._queues.oldest()

    def origin_of(self, key: bytes) -> int | None:
        """Returns the origin of a key's next message if that may go, wherever it waits."""
        return self._retry_partition.lending.origin_of(key)

    def key(self, key: bytes) -> KeyView:
        """Returns the waiting, running and moving messages of a key."""
        parking, bodies = self._retries.parking, self._retries.bodies
        front = parking.lines.front(key)
        return KeyView(
            key in self._queues.blocked,
            parking.moving.get(key, ()),
            None if front is None else front[0],
            None if front is None else bodies.kept.get(front[1]),
            self._queues.queues.get(key, ()),
        )

    def parked_keys(self) -> Iterator[ParkedKey]:
        """Yields the keys that wait in the retry topic, or for other lanes."""
        retries = self._retries
        lines, names = retries.parking.lines, retries.followers.names
        for key in lines:
            waiting = lines.count(key) + len(self._queues.queues.get(key, ()))
            reason = None if names is None else names.reason(self.number, key)
            yield ParkedKey(key, self.key(key).first, lines.peek(key), waiting, reason)

    # Its decisions

    def _fetched(self, event: Fetched, now: float) -> Sequence[Effect]:
        before = self._offsets.committable
        news = self._retry_partition.came(self._offsets.receive(event.records, event.epoch), now)
        lease = None
        if event.inline and self._retry_partition.unhindered:
            lease, news = self._inline(news)
        self._outcomes.line_up(news, event.after)
        if self._offsets.committable != before:
            self._commits.dirty = True
        return () if lease is None else (Deliver([lease]),)

    def _followed(self, event: Followed, now: float) -> Sequence[Effect]:
        self._retries.settle_all(event.keys, now)
        return ()

    def _inline(self, news: Sequence[Record]) -> tuple[Lease | None, Sequence[Record]]:
        """Returns an inline lease (`inline_lease`) of new records that may be taken, and the others, which queue."""
        busy, parked = self._queues.queues, self._queues.parked
        free, queued = inline_lease.apart(news, busy, parked) if busy or parked else (news, ())
        if not free or not self.open:
            return None, news
        return self._leases.open_inline(self.number, self.epoch, free), queued

    def _passed(self, event: Passed, now: float) -> Sequence[Effect]:
        """Ends an inline lease, or lets its current record go on as a lease like any other."""
        lease, acked = event.lease, inline_lease.finished(event)
        if lease.state is LeaseState.OVER or lease.epoch != self.epoch:
            return (Stale(len(acked)),)
        rest = lease.records[event.reached :]
        keys, kept = lease.keys, [release.lease for release in event.left]
        if event.current:
            self._leases.narrow(lease, rest[0], self._key(rest[0]))
            kept.append(lease)
            rest = rest[1:]
        else:
            self._leases.end_inline_lease(lease, event.reached)
        for release in event.left:
            self._leases.open(release.lease)
        rest = [*event.skipped, *rest]
        if keys:
            self._outcomes.end_due(keys, {each.key for each in kept}, acked, event.nacked, rest)
        else:
            for each in kept:
                self._block(each.key)
            self._outcomes.end_fresh(acked, event.nacked, rest, queued=lease.queued)
        for release in event.left:
            self._reports.release(release, now)
        return ()

    # Outgoing leases

    def _demand(self, event: Demand, now: float) -> Sequence[Effect]:
        if not self.open:
            return ()
        inline = event.inline and event.limit and self._retry_partition.unhindered
        effects = self._due(now) if inline and event.below is None else []
        event = event._replace(limit=event.limit - len(effects))
        leases: list[Lease] = []
        run = self._run(event)
        left = self._demand_with_care(event, leases, now)
        if inline and left == event.limit and event.below is not None and not self._rules.ordered:
            return self._inline_of_lane(event.run, event.below)
        for _ in range(left):
            if not (records := self._queues.take(run, event.below)):
                break
            leases.append(self._lease(records))
        if leases:
            effects.append(Deliver(leases))
        return effects

    def _inline_of_lane(self, most: int, below: int) -> list[Effect]:
        """Returns an inline lease of the messages that wait in a lane without an order."""
        if not (records := self._queues.take_loose(most, below)):
            return []
        lease = self._leases.open_inline(self.number, self.epoch, records, queued=True)
        return [Deliver([lease], inline=True)]

    def _due(self, now: float) -> list[Effect]:
        """Returns an inline lease of due messages (`inline_lease`)."""
        records, keys = self._retry_partition.lending.gather(DUE, now)
        if not records:
            return []
        return [Deliver([self._leases.open_inline(self.number, self.epoch, records, keys)], inline=True)]

    def _demand_with_care(self, event: Demand, leases: list[Lease], now: float) -> int:
        """Leases parked messages, and messages that must be noted first; returns how many leases are still wanted."""
        retry_partition, handout = self._retry_partition, self._retry_partition.lending
        limit = retry_partition.limit(event.limit, now)
        taken = 0
        most = retry_partition.parked(limit) if event.key is not None or self._retries.ready else 0
        for each in handout.take(most, self._run(event), now, event.key) if most else ():
            lease = self._lease(each.records)
            lease.entries = each.entries
            if each.entries is not None:
                lease.attempt = each.entries[0].attempt + each.entries[0].crashes
            taken += 1
            if retry_partition.admit(lease):
                leases.append(lease)
        suspects = self._retries.home.suspects
        while (
            taken < limit
            and retry_partition.careful(self._queues.oldest())
            and suspects.takes(self._queues.oldest())
        ):
            together = suspects.together(self._queues.oldest())
            if event.below is not None:
                together = min(together, event.run)
            if not (records := self._queues.take(together, event.below)):
                break
            retry_partition.admit(self._lease(records))
            taken += 1
        oldest = self._queues.oldest()
        if event.below is not None and oldest is not None and oldest >= event.below:
            oldest = None
        left = 0 if retry_partition.careful(oldest) else limit - taken
        if taken or (left and oldest is not None):
            self._retries.outage.began(now)
        return left

    def _run(self, event: Demand) -> int:
        """Returns how long a run may be: short where many keys wait, so that they go forward together."""
        queues = self._queues
        if event.spread and queues.ready_count + len(queues.loose) > 1:
            return 1
        return min(event.run, max(SHORTEST_RUN, HANDED // (len(queues.queues) + 1)))

    def _lease(self, records: Sequence[Record]) -> Lease:
        lease = Lease(self.number, self.epoch, self._key(records[0]), records, 1)
        self._leases.open(lease)
        self._outcomes.hold_next(lease.key)
        return lease

    def _key(self, record: Record) -> bytes | None:
        return record.key() if self._rules.ordered else None

    def _block(self, key: bytes | None) -> None:
        if key is not None:
            self._queues.block(key)

    # Time, commits and ownership

    def _ended(self, event: Ended, now: float) -> Sequence[Effect]:
        self._outcomes.free_keys(event.keys)
        return ()

    def _tick(self, event: Tick, now: float) -> Sequence[Effect]:
        effects = list(self._reports.expire(now))
        if self.open:
            self._retry_partition.tick(event, now)
            effects += self._retry_partition.send(now, closing=event.closing)
        return effects

    def _commit_answered(self, event: CommitAnswered, now: float) -> Sequence[Effect]:
        return self._retry_partition.answered(accepted=event.accepted)

    def _moves_answered(self, event: MovesAnswered, now: float) -> Sequence[Effect]:
        if self._commits.in_flight is None:
            return ()
        if event.ending is Ending.UNKNOWN:
            return [*self._lost(Lost(), now), Restart()]
        effects = list(self._retry_partition.take_moves_answered(event, now))
        if (
            not self.open
            and event.ending is Ending.ABORTED
            and (last := self._retry_partition.plain_final_commit())
        ):
            effects.append(last)  # the commit was the final commit of a revoked partition
        return effects

    def _revoked(self, event: Revoked, now: float) -> Sequence[Effect]:
        """Stops the partition with a final commit; the client has seen every other commit answered before."""
        self.open = False
        running = [lease for lease in self._leases.active if lease.state is LeaseState.RUNNING]
        for lease in self._retry_partition.unstarted():
            running.remove(lease)
            self._outcomes.give_back(lease, self._leases.close(lease))
            self._outcomes.free(lease)
        last = self._retry_partition.final_commit(now, closing=event.closing)
        return [Stop(running)] if last is None else [Stop(running), last]

    def _returned(self, event: Returned, now: float) -> Sequence[Effect]:
        self.open = True
        self._commits.dirty = True
        self._retry_partition.returned()
        return ()

    def _lost(self, event: Lost, now: float) -> Sequence[Effect]:
        self.open = False
        for lease in (active := list(self._leases.active)):
            self._leases.close(lease)
        self._retry_partition.close()
        self._acks.lost()
        return (Withdraw(active),) if active else ()

    def check(self) -> None:
        """Raises `InvariantViolated` if an invariant is broken."""
        parts = self._offsets, self._queues, self._leases, self._acks, self._retry_partition
        check(Parts(self.open, *parts))
