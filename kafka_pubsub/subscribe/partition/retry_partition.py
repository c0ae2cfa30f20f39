"""A partition's dealings with its retry partition: which messages begin, which effects are sent, which answers come.

Theory. `retry_state` holds the waiting messages, `handout` hands them out, `maintenance` works by time. This file has
the part that they share with the partition's own queues and commits: whether anything may begin yet, whether the next
commit is plain or a move, and which leases wait for it.

Rules
1. Nothing begins before the retry partition was read up to its high watermark (a move may hide behind the last
   stable offset), nor before a commit was accepted that was made since the partition came, or came back: an older
   commit shows neither that the partition is still ours nor which callbacks may start.
2. The first commit of an ownership is plain: it notes our writer's number in the log, by which a successor can end our
   open transactions. Once a partition came back, the log has the note, and more may have finished than a plain commit
   takes.
3. A single commit is unanswered at a time: a move waits for a plain commit's answer, and the other way round.
   Records behind the last checkpoint aren't deleted: the next owner reads them, also where the broker has forgotten the
   group's offsets.
4. The final commit is always sent, even if nothing was acked since the commit before: only this commit carries the
   clean flag, and without the flag the next owner takes the messages that this owner had started for suspects.
5. When a stream ends, a checkpoint is written before the final commit, so that the position that this stores is behind
   the checkpoint: a checkpoint that lay behind the position would look like a message that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import ceil

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.partition.commits import Commits, records_of
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.dead_lettering import DeadLettering
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    StoreMoves,
    Trim,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import Bodies, MovesAnswered, RetryCaughtUp, RetryFetched, Tick
from kafka_pubsub.subscribe.partition.handout import Handout
from kafka_pubsub.subscribe.partition.intake import Intake
from kafka_pubsub.subscribe.partition.key_queues import KeyQueues
from kafka_pubsub.subscribe.partition.leases import Lease, Leases
from kafka_pubsub.subscribe.partition.maintenance import LOOSE, Maintenance
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.retry_state import RetryState
from kafka_pubsub.subscribe.partition.settings import Rules, Start

__all__ = ["RetryPartition"]

#: Records of the retry partition that are deleted together, so that a request is rare.
TRIM = 10_000
#: Seconds of a grid: messages that become due between two of its lines go together at the second line. Each look costs
#: the same, whether a single message is due then or a hundred.
TOGETHER = 0.02


class RetryPartition:
    """The retry partition of a partition under one ownership."""

    def __init__(
        self,
        start: Start,
        rules: Rules,
        jitter: Callable[[], float],
        turn: TrialLock,
        queues: KeyQueues,
        offsets: Offsets,
        leases: Leases,
    ) -> None:
        self._leases = leases
        self._queues = queues
        self.retries = retries = RetryState(start.found, rules, jitter, queues, offsets, leases.active, turn)
        self.commits = Commits(start, retries.home, retries.retry, lambda: retries.copies.possible)
        self.commits.hurry()  # rules 1 and 2
        self.intake = Intake(self.retries, queues, ordered=rules.ordered)
        self.lending = Handout(self.retries, queues, offsets)
        self.dead_lettering = DeadLettering(self.retries)
        self.maintenance = Maintenance(self.retries, queues, offsets, leases, rules)
        self._both = (retries.home.suspects, retries.retry.suspects)
        self._tried = self._home_suspects = retries.home.suspects
        #: Whether a commit was accepted that was made since the partition came, or came back.
        self.announced = False
        #: The commit that was unanswered when the partition came back: its answer says nothing about the time since.
        self._before: CommitBoth | None = None
        found = start.found
        self._trimmed = found.retry.position

    # Starting

    @property
    def may_begin(self) -> bool:
        """Whether anything may be handed out (rule 1)."""
        return self.retries.caught_up and self.announced

    @property
    def hurried(self) -> bool:
        """Whether callbacks wait for commits: nothing begins before the first, no suspect before its note."""
        return not self.announced or any(suspects.busy for suspects in self._both)

    @property
    def careful_at_all(self) -> bool:
        """Whether messages of home are noted before they start."""
        return self._home_suspects.end > 0

    @property
    def unhindered(self) -> bool:
        """Whether home's records may be handed out without a note and without a probe."""
        return self.may_begin and not self._home_suspects.end and not self.retries.outage.probing

    @property
    def waiting_suspects(self) -> int:
        """The number of leases that wait for their trial, with no lease runner; others may be handed out."""
        return sum(suspects.waiting_suspects for suspects in self._both)

    @property
    def wants_turn(self) -> bool:
        """Whether a suspect could be tried now, if the stream may start another message."""
        return any(suspects.wants_turn for suspects in self._both)

    @property
    def tries(self) -> bool:
        """Whether a suspect of this partition is on trial."""
        return any(suspects.tries for suspects in self._both)

    def tick(self, event: Tick, now: float) -> None:
        """Does the work that time brings."""
        if event.wall is not None:
            self.retries.schedules.clock_offset = event.wall
        self.maintenance.do(now, stuffed=event.stuffed)
        if not event.taken:
            # The log that had the last trial is asked last.
            for suspects in sorted(self._both, key=lambda some: some is self._tried):
                suspects.try_next()
                if suspects.tries:
                    self._tried = suspects

    def limit(self, wanted: int, now: float) -> int:
        """Returns how many leases may be handed out now."""
        if not self.may_begin:
            return 0
        outage = self.retries.outage
        if not outage.probing:
            return wanted
        return min(wanted, 1) if outage.allows(len(self._leases.active), now) else 0

    def parked(self, limit: int) -> int:
        """Returns how many of these leases may be of the retry partition."""
        fresh = self.retries.outage.fresh and (self._queues.ready or self._queues.loose)
        return 0 if fresh else limit

    def careful(self, oldest: int | None) -> bool:
        """Returns whether home's oldest ready record must not start unnoted."""
        return oldest is not None and self._home_suspects.concerns(oldest)

    def admit(self, lease: Lease) -> bool:
        """Returns whether the lease may start now; else it waits for its note, or for its trial."""
        home = lease.entries is None
        entry = None if lease.entries is None else lease.entries[0]
        if lease.entries is None:
            offsets = [record.offset() for record in lease.records]
            noted = self.careful(offsets[0])
        else:
            offsets = [each.offset for each in lease.entries]
            noted = self.lending.is_noted(lease.entries[0].offset, lease.entries[0].crashes)
        if noted:
            self._both[not home].admit(lease, offsets, 0 if entry is None else entry.crashes)
            self.commits.hurry()
        return not noted

    def came(self, records: Sequence[Record], now: float) -> Sequence[Record]:
        """Returns home's records without the one that killed the last owner's process, which is moved."""
        suspects = self._home_suspects
        copies = self.retries.copies
        if copies.possible:
            records = copies.without(records)
        if suspects.culprit is None:
            return records
        for at, record in enumerate(records):
            if record.offset() == suspects.culprit:
                self.retries.crashed(record, now)
                return [*records[:at], *records[at + 1 :]]
        return records

    def over(self, leases: Sequence[Lease]) -> None:
        """Forgets leases whose callbacks have ended, or never begin."""
        for suspects in self._both:
            if suspects.busy:
                for lease in leases:
                    suspects.over(lease)
                if suspects.waiting:
                    self.commits.hurry()  # another partition may wait for the end of a trial

    def freed(self, keys: Collection[bytes | None], now: float) -> None:
        """Settles keys that no lease runner has any more."""
        lines = self.retries.parking.lines
        if lines:
            for key in keys:
                if key is not None and key in lines:
                    self.retries.settle(key, now)

    def unstarted(self) -> list[Lease]:
        """Takes back the leases that no callback will see: the partition is revoked."""
        return [lease for suspects in self._both for lease in suspects.unstarted()]

    # Sending

    def send(self, now: float, *, closing: bool) -> Iterator[Effect]:
        """Yields the effects that are due; `closing`: the partition is given up when no callback runs (rule 5)."""
        commits, retries = self.commits, self.retries
        dead_letters, may_commit = retries.dead_letters, commits.in_flight is None and self.announced
        if dead_letters.unanswered and may_commit and (letters := self.dead_lettering.finish()):
            yield commits.transaction(letters, now)
        if commits.in_flight is None:
            may_load = self.announced and retries.moves.waiting
            batch = retries.load(now, early=commits.open(now)) if may_load else ()
            if not batch:
                if not self.announced or any(suspects.waiting for suspects in self._both):
                    commits.hurry()
                commits.dirty = commits.dirty or retries.lacks_slow(self.maintenance.is_slow, now)
            ended = closing and self.unsaved
            checkpoint = ended or (commits.open(now) and commits.checkpoints.due(now))
            if self.announced and (batch or checkpoint or commits.due(now)):
                yield commits.transaction(batch, now, closing=ended)
            elif commits.due(now):
                yield commits.announce(now)
        if dead_letters.waiting and self.may_begin and (letters := self.dead_lettering.write(now)):
            yield WriteDeadLetters(records_of(letters))
        if retries.bodies.wanted and (offsets := retries.bodies.requests()):
            yield ReadBodies(offsets)
        if (low := self._needed()) - self._trimmed >= TRIM:
            self._trimmed = low
            yield Trim(low)
        yield from retries.news
        retries.news = []

    @property
    def unsaved(self) -> bool:
        """Whether no callback runs any more, and finished messages aren't in a checkpoint yet."""
        return not self._leases.active and (self.commits.dirty or self.commits.checkpoints.changed)

    def _needed(self) -> int:
        """Returns the offset of the retry partition below which everything may be deleted."""
        stored, named = self.commits.stored, self.commits.checkpoints.named
        low = stored.retry.offset
        return low if named is None else min(low, named.offset)

    def final_commit(self, now: float, *, closing: bool) -> CommitBoth | StoreMoves | None:
        """Makes the final commit of a revoke, with the moves that wait; at a close with a checkpoint."""
        if not self.announced or self.commits.in_flight is not None:
            return self.plain_final_commit()
        self.commits.dirty = True  # rule 4
        return self.commits.transaction(
            self.retries.load(now, early=True), now, clean=self._clean, closing=closing
        )

    def plain_final_commit(self) -> CommitBoth | None:
        """Makes the final commit of a revoke where no transaction may be sent."""
        self.commits.dirty = True  # rule 4
        return self.commits.final_commit(clean=self._clean)

    @property
    def _clean(self) -> bool:
        """Whether the next owner need not look for suspects."""
        return not any(suspects.inherited for suspects in self._both)

    def wakeup_at(self) -> list[float | None]:
        """Returns when something becomes due because time has passed; asks only parts in which something waits."""
        retries, dead_letters = self.retries, self.retries.dead_letters
        times = [retries.outage.due_at()]
        if self.commits.in_flight is None and self.announced:
            times.append(self.commits.checkpoint_due_at())
            times.append(retries.moves.due_at() if retries.moves.waiting else None)
            times.append(0.0 if self.dead_lettering.written else None)
        elif self.commits.in_flight is None:
            times.append(self.commits.due_at())
        parking = retries.parking
        if parking.lines or parking.loose.count:
            times.append(self._parked_due_at())
        if (retries.bodies.wanted and retries.bodies.waiting) or retries.news:
            times.append(0.0)
        if dead_letters.waiting and self.may_begin:
            times.append(self.dead_lettering.due_at())
        return times

    def _parked_due_at(self) -> float | None:
        """Returns when parked messages become due."""
        retries, parking = self.retries, self.retries.parking
        room = len(retries.loose) + len(retries.loose_wanted) < LOOSE
        loose = room and parking.loose.count > 0 and retries.loose_may_go
        due = parking.next_due(loose=loose)
        return None if due is None else ceil(due / TOGETHER) * TOGETHER

    # Answers

    def answered(self, *, accepted: bool, checkpoint: int | None = None) -> Sequence[Effect]:
        """Takes the answer to the plain commit or the transaction: leases that waited for their notes may start."""
        fresh = accepted and self.commits.in_flight is not self._before
        self._before = None
        self.commits.answered(accepted=accepted, checkpoint=checkpoint)
        self.announced = self.announced or fresh
        leases = [lease for suspects in self._both for lease in suspects.answered(accepted=fresh)]
        return (Deliver(leases),) if leases else ()

    def take_moves_answered(self, event: MovesAnswered, now: float) -> Sequence[Effect]:
        """Takes the known outcome of the transaction."""
        stored = event.ending is Ending.STORED
        if self.dead_lettering.joined:
            self.dead_lettering.stored(now) if stored else self.dead_lettering.aborted(event.refused, now)
        elif stored:
            self.retries.stored(now)
        else:
            self.retries.aborted(event.refused, now)
        return self.answered(accepted=event.ending is Ending.STORED, checkpoint=event.checkpoint)

    def fetched(self, event: RetryFetched, now: float) -> Sequence[Effect]:
        """Takes in records of the retry partition."""
        finished_runs = self.retries.finished_runs
        before = finished_runs.committable
        self.intake.fetched(event.records, now)
        finished_runs.reach(event.records, event.epoch)
        if before != finished_runs.committable:
            self.commits.dirty = True
        return ()

    def caught_up(self, event: RetryCaughtUp, now: float) -> Sequence[Effect]:
        """Takes note that the retry partition was read up to its end at the assignment."""
        self.retries.finished_runs.advance(event.position, event.epoch)
        self.retries.settle_everybody(now)
        return ()

    def read_up_to(self, position: int, epoch: int | None) -> None:
        """Takes note that nothing is left to be read below `position`."""
        finished_runs = self.retries.finished_runs
        before = finished_runs.committable
        if self.retries.caught_up:
            finished_runs.advance(position, epoch)
        self.commits.dirty = self.commits.dirty or finished_runs.committable != before

    def bodies(self, event: Bodies, now: float) -> Sequence[Effect]:
        """Takes in bodies that were read."""
        self.intake.bodies(event, now)
        return ()

    def returned(self) -> None:
        """Announces the partition, which came back, anew, and asks again for the bodies that were being read."""
        self.announced = False
        self._before = self.commits.in_flight
        for suspects in self._both:
            suspects.returned()
        self.retries.bodies.answered()
        self.commits.hurry()

    def close(self) -> None:
        """Gives the partition up, which is no longer this member's."""
        for suspects in self._both:
            suspects.close()
