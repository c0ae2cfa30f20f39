"""A partition's dealings with its retry partition, in one place: what begins, what is sent, what is answered.

Theory. `retries` holds what waits, `retry_leases` hands it out, `chores` does what time brings. Here is what they and
the main half agree upon: whether anything may begin yet, whether the next commit is plain or a relocation, and which
leases wait for it.

Rules
1. Nothing begins before the retry partition was read up to its high watermark (a relocation may hide behind the last
   stable offset), nor before a commit of this ownership was accepted.
2. That first commit is plain: it tells the log our writer's number, by which a successor can end what we left open.
3. One commit in flight: a relocation waits for a plain commit's answer, and the other way round.
   What lies behind the last checkpoint isn't deleted: whoever takes over, or comes after the broker has forgotten the
   group's offsets, reads it.
4. What a handler keeps for long is named in the log, if need be by a commit that says nothing else: people look there
   for what holds a key up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import ceil

from kafka_pubsub.core.chores import LOOSE, Chores
from kafka_pubsub.core.commits import Beside, Commits
from kafka_pubsub.core.effects import (
    Commit,
    CommitBoth,
    Deliver,
    Effect,
    ReadBodies,
    Relocate,
    Trim,
)
from kafka_pubsub.core.events import Bodies, Record, Relocated, RetryCaughtUp, RetryFetched, Tick
from kafka_pubsub.core.key_queues import KeyQueues
from kafka_pubsub.core.leases import Lease, Leases
from kafka_pubsub.core.notes import Doubt, Notes
from kafka_pubsub.core.offsets import Offsets
from kafka_pubsub.core.retries import Retries
from kafka_pubsub.core.retry_intake import Intake
from kafka_pubsub.core.retry_leases import RetryLeases
from kafka_pubsub.core.retry_record import RetryRecord
from kafka_pubsub.core.rules import RetryStart, Rules, Start
from kafka_pubsub.core.suspects import Turn
from kafka_pubsub.model import Ending

__all__ = ["RetryHalf"]

#: Records of the retry partition that are deleted together, so that a request for it is rare.
TRIM = 10_000
#: Seconds of a grid: what becomes due between two of its lines goes together at the second. Each look costs the same,
#: whether one message is due then or a hundred.
TOGETHER = 0.02


class RetryHalf:
    """The retry half of one partition under one ownership."""

    def __init__(
        self,
        start: Start,
        retry: RetryStart,
        rules: Rules,
        jitter: Callable[[], float],
        turn: Turn,
        queues: KeyQueues,
        offsets: Offsets,
        leases: Leases,
    ) -> None:
        self._leases = leases
        self._queues = queues
        self.retries = Retries(start.number, retry, rules, jitter, queues, offsets, turn)
        books = self.retries.books
        beside = Beside(start, retry.nonce, books, self)
        self.commits = Commits(offsets, start.writer, start.stored, beside)
        self.commits.hurry()  # rules 1 and 2
        self.intake = Intake(self.retries)
        self.lending = RetryLeases(self.retries, queues, offsets)
        self.chores = Chores(self.retries, queues, offsets, leases, rules)
        self._both = (self.retries.main_suspects, self.retries.suspects)
        self._tried = self.retries.main_suspects
        #: Whether a commit of this ownership was accepted.
        self.announced = False
        self._trimmed = retry.position
        #: Records that the last commit noted, or would have if there had been room.
        self._named: set[tuple[bool, int]] = set()

    # What begins

    @property
    def may_begin(self) -> bool:
        """Whether anything may be handed out (rule 1)."""
        return self.retries.caught_up and self.announced

    @property
    def hurried(self) -> bool:
        """Whether handlers wait for commits: nothing begins before the first, no suspect before its note."""
        return not self.announced or any(suspects.busy for suspects in self._both)

    @property
    def careful_at_all(self) -> bool:
        """Whether messages of main are noted before they start."""
        return self.retries.main_suspects.end > 0

    @property
    def unhindered(self) -> bool:
        """Whether main's records may be handed out just like that."""
        retries = self.retries
        return self.may_begin and not retries.main_suspects.end and not retries.outage.probing

    @property
    def benched(self) -> int:
        """Leases that wait for their trial: nobody has them, and others may be handed out meanwhile."""
        return sum(suspects.benched for suspects in self._both)

    @property
    def wants_turn(self) -> bool:
        """Whether a suspect could be tried now, if the stream may start one message more."""
        return any(suspects.wants_turn for suspects in self._both)

    @property
    def tries(self) -> bool:
        """Whether a suspect of this partition is on trial."""
        return any(suspects.tries for suspects in self._both)

    def tick(self, event: Tick, now: float) -> None:
        """Time has passed."""
        self.chores.do(now, stuffed=event.stuffed)
        if not event.taken:
            # Who had the last trial is asked last.
            for suspects in sorted(self._both, key=lambda some: some is self._tried):
                suspects.try_next()
                if suspects.tries:
                    self._tried = suspects

    def limit(self, wanted: int, now: float) -> int:
        """How many leases may be handed out now."""
        if not self.may_begin:
            return 0
        outage = self.retries.outage
        if not outage.probing:
            return wanted
        return min(wanted, 1) if outage.allows(len(self._leases.active), now) else 0

    def parked(self, limit: int) -> int:
        """How many of these leases may be of the retry partition."""
        fresh = self.retries.outage.fresh and (self._queues.ready or self._queues.loose)
        return 0 if fresh else limit

    def careful(self, oldest: int | None) -> bool:
        """Whether main's oldest ready record must not start unnoted."""
        return oldest is not None and self.retries.main_suspects.concerns(oldest)

    def admit(self, lease: Lease) -> bool:
        """Whether the lease may start now; else it waits for its note, or for its turn."""
        main = lease.entries is None
        entry = None if lease.entries is None else lease.entries[0]
        if lease.entries is None:
            offsets = [record.offset() for record in lease.records]
            noted = self.careful(offsets[0])
        else:
            offsets = [each.offset for each in lease.entries]
            noted = self.lending.is_noted(lease.entries[0])
        if noted:
            self._both[not main].admit(lease, offsets, 0 if entry is None else entry.crashes)
            self.commits.hurry()
        return not noted

    def came(self, records: Sequence[Record], now: float) -> Sequence[Record]:
        """Main's records without the one that killed the last owner's process, which is relocated."""
        suspects = self.retries.main_suspects
        if self.retries.older:
            records = self.retries.without_copies(records)
        if suspects.culprit is None:
            return records
        for at, record in enumerate(records):
            if record.offset() == suspects.culprit:
                self.retries.crashed(record, now)
                return [*records[:at], *records[at + 1 :]]
        return records

    def over(self, leases: Sequence[Lease]) -> None:
        """The handlers of these have ended, or never begin."""
        for suspects in self._both:
            if suspects.busy:
                for lease in leases:
                    suspects.over(lease)
                if suspects.waiting:
                    self.commits.hurry()  # a neighbour may wait for the end of a trial

    def freed(self, keys: Collection[bytes | None], now: float) -> None:
        """Nobody holds these keys any more."""
        lines = self.retries.parking.lines
        if lines:
            for key in keys:
                if key is not None and key in lines:
                    self.retries.settle(key, now)

    def unstarted(self) -> list[Lease]:
        """Leases that no handler will see: the partition is revoked."""
        return [lease for suspects in self._both for lease in suspects.unstarted()]

    # What is sent

    @property
    def older(self) -> bool:
        """Noter: whether newer copies of main's messages may lie in the retry partition."""
        return self.retries.older

    @property
    def doubts(self) -> tuple[Doubt, Doubt]:
        """Noter: what may have been started in main and in the retry partition."""
        return self.retries.main_suspects.doubt, self.retries.suspects.doubt

    def main_notes(self, position: int, gone: Collection[int]) -> Notes:
        """Noter: of the main partition."""
        self._named = {_place(record) for record in self._current()}
        wishes = [offset for retried, offset in self._named if not retried]
        wishes = [offset for offset in wishes if offset >= position]
        return self.retries.main_suspects.note(wishes, position, gone)

    def retry_notes(self, position: int, gone: Collection[int]) -> Notes:
        """Noter: of the retry partition."""
        wishes = [offset for retried, offset in self._named if retried]
        wishes = [offset for offset in wishes if offset >= position]
        return self.retries.suspects.note(wishes, position, gone)

    def _current(self) -> Iterator[Record]:
        """Records whose handlers were seen running."""
        for lease in self._leases.active:
            if lease.deadline is not None and lease.done < len(lease.records):
                yield lease.records[lease.done]

    def _keeps_unnamed(self, now: float) -> bool:
        """Whether somebody keeps a record for long that the log doesn't name (rule 4)."""
        return any(
            lease.done < len(lease.records)
            and _place(lease.records[lease.done]) not in self._named
            and self.chores.is_slow(lease, now)
            for lease in self._leases.active
        )

    def send(self, now: float) -> Iterator[Effect]:
        """What is due to be sent."""
        commits, retries = self.commits, self.retries
        if commits.in_flight is None:
            batch = retries.load(now, early=commits.open(now)) if self.announced else ()
            if not batch:
                if not self.announced or any(suspects.waiting for suspects in self._both):
                    commits.hurry()
                commits.dirty = commits.dirty or self._keeps_unnamed(now)
            checkpoint = commits.open(now) and commits.checkpoints.due(now)
            if self.announced and (batch or checkpoint or commits.due(now)):
                yield commits.transaction(batch, now)
            elif commits.due(now):
                yield commits.make(now)
        if offsets := retries.bodies.requests():
            yield ReadBodies(offsets)
        if (low := self._needed()) - self._trimmed >= TRIM:
            self._trimmed = low
            yield Trim(low)
        yield from retries.news
        retries.news = []

    def _needed(self) -> int:
        """Below this offset of the retry partition everything may be deleted."""
        stored, named = self.commits.stored, self.commits.checkpoints.named
        low = stored.retry.offset if isinstance(stored, CommitBoth) else 0
        return low if named is None else min(low, named.offset)

    def last_word(self, now: float, *, closing: bool) -> Commit | CommitBoth | Relocate | None:
        """What is sent at a revoke: with the moves that wait, if there are any, and at a close with a checkpoint."""
        commits = self.commits
        clean = not any(suspects.duty for suspects in self._both)
        if not self.announced or commits.in_flight is not None:
            return commits.last_word(clean=clean)
        batch = self.retries.load(now, early=True)
        if not batch and not commits.dirty and not (closing and commits.checkpoints.changed):
            return None
        return commits.transaction(batch, now, clean=clean, closing=closing)

    def wakeup_at(self) -> list[float | None]:
        """When something becomes due by itself."""
        retries = self.retries
        due = retries.parking.next_due(loose=len(retries.loose) + len(retries.loose_wanted) < LOOSE)
        times = [None if due is None else ceil(due / TOGETHER) * TOGETHER]
        if retries.bodies.waiting or retries.news:
            times.append(0.0)
        if self.commits.in_flight is None:
            times.append(retries.moves.due_at() if self.announced else self.commits.due_at())
            times.append(self.commits.checkpoints.due_at() if self.announced else None)
        return times

    # What is answered

    def answered(self, *, accepted: bool, checkpoint: int | None = None) -> Sequence[Effect]:
        """The plain commit, or the transaction, was answered: what waited for its note may start."""
        self.commits.answered(accepted=accepted, checkpoint=checkpoint)
        self.announced = self.announced or accepted
        leases = [lease for suspects in self._both for lease in suspects.answered(accepted=accepted)]
        return (Deliver(leases),) if leases else ()

    def relocated(self, event: Relocated, now: float) -> Sequence[Effect]:
        """The transaction has an outcome that is known."""
        if event.ending is Ending.STORED:
            self.retries.stored(now)
        else:
            self.retries.aborted(event.refused, now)
        return self.answered(accepted=event.ending is Ending.STORED, checkpoint=event.checkpoint)

    def fetched(self, event: RetryFetched, now: float) -> Sequence[Effect]:
        """The retry partition was read on."""
        books = self.retries.books
        before = books.committable
        self.intake.fetched(event.records, now)
        if before != books.committable:
            self.commits.dirty = True
        return ()

    def caught_up(self, event: RetryCaughtUp, now: float) -> Sequence[Effect]:
        """It was read up to where it ended at the assignment."""
        self.retries.books.advance(event.position)
        self.retries.settle_everybody(now)
        return ()

    def bodies(self, event: Bodies, now: float) -> Sequence[Effect]:
        """Bodies were read."""
        self.intake.bodies(event, now)
        return ()

    def returned(self) -> None:
        """The partition came back: it is announced anew, and what was being read for it is asked for again."""
        self.announced = False
        for suspects in self._both:
            suspects.returned()
        self.retries.bodies.answered()
        self.commits.hurry()

    def close(self) -> None:
        """The partition isn't ours any more."""
        for suspects in self._both:
            suspects.close()


def _place(record: Record) -> tuple[bool, int]:
    """Whether it lies in the retry partition, and its offset there or in main."""
    return (True, record.retry_offset) if isinstance(record, RetryRecord) else (False, record.offset())
