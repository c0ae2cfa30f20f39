"""The reports of lease runners about their leases, and their meaning.

Theory. A lease runner acks its records in turn and lets go of its lease in the end, or keeps a record until its
deadline. Each report either finishes records, gives back records that no callback has seen, or says that the current
record failed. `LeaseOutcomes` does the rest: it knows where a record came from and where it goes.

Rule: a report about a lease that is over changes nothing, and is counted as stale (I4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import Why
from kafka_pubsub.subscribe.partition.effects import Effect, Stale, Withdraw
from kafka_pubsub.subscribe.partition.events import (
    Extended,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    Progressed,
    Settled,
)
from kafka_pubsub.subscribe.partition.leases import Lease, Leases, LeaseState, Settlement
from kafka_pubsub.subscribe.partition.settings import Rules

__all__ = ["LeaseOutcomes", "LeaseReports"]


class LeaseOutcomes(Protocol):
    """The places that records come from and go to."""

    def finish(self, lease: Lease, records: Sequence[Record]) -> None:
        """Finishes these acked records of the lease."""

    def finish_whole(self, leases: Sequence[Lease]) -> None:
        """Finishes leases whose every record is acked and whose lease runners have ended: the hot path."""

    def give_back(self, lease: Lease, records: Sequence[Record]) -> None:
        """Returns records that were never begun to where they waited."""

    def free(self, lease: Lease) -> None:
        """Unblocks the key, and the moves, that waited for this lease or its callback to end."""

    def fail(self, lease: Lease, why: Why, delay: float | None, error: str, now: float) -> None:
        """Moves the current record, which failed; ends and frees the lease, and gives back the records behind it."""


class LeaseReports:
    """The reports on the leases of a partition, and their application."""

    def __init__(self, leases: Leases, rules: Rules, epoch: int, home: LeaseOutcomes) -> None:
        self._leases = leases
        self._rules = rules
        self.epoch = epoch
        self._home = home

    def over(self, lease: Lease) -> bool:
        """Returns whether reports on the lease are stale."""
        return lease.state is LeaseState.OVER or lease.epoch != self.epoch

    def released(self, event: LeasesReported, now: float) -> Sequence[Effect]:
        """Takes the reports of lease runners that let go of their leases."""
        stale = 0
        whole: list[Lease] = []
        for release in event.releases:
            lease = release.lease
            if self.over(lease):
                stale += max(0, release.done - lease.done)  # letting go of the lease isn't stale itself
            elif release.outcome is LeaseOutcome.FINISHED and lease.state is LeaseState.RUNNING:
                whole.append(lease)
            else:
                self.release(release, now)
        if whole:
            self._home.finish_whole(whole)
        return (Stale(stale),) if stale else ()

    def release(self, release: LeaseReport, now: float) -> None:
        """Takes the report of a lease runner that lets go of its lease."""
        lease, outcome, home = release.lease, release.outcome, self._home
        self._finish(lease, release.done)
        if lease.done == len(lease.records):
            self._leases.close(lease)
            home.free(lease)
        elif outcome is LeaseOutcome.UNTOUCHED or release.done < lease.done:
            # Expired or not, no callback has seen this record: the report was about a record that has been acked
            # meanwhile.
            home.give_back(lease, self._leases.close(lease))
            home.free(lease)
        elif lease.state is LeaseState.EXPIRED:
            home.fail(lease, Why.EXPIRED, None, release.error, now)
        elif outcome is LeaseOutcome.KEPT:
            home.give_back(lease, self._leases.keep(lease, self._kept_until(lease, now)))
            if lease.early is not None and lease.early.done == lease.done:
                self._settle(lease.early, now)
        else:
            home.fail(lease, Why.NACKED, release.delay, release.error, now)

    def _kept_until(self, lease: Lease, now: float) -> float:
        return now + self._rules.ack_deadline if lease.extended is None else lease.extended

    def progressed(self, event: Progressed, now: float) -> Sequence[Effect]:
        """Takes the progress of lease runners."""
        allowed = max(self._rules.ack_deadline, self._rules.max_extension)
        for lease, done, started in event.steps:
            if lease.state is not LeaseState.RUNNING or lease.epoch != self.epoch:
                continue
            if done > lease.done:
                self._finish(lease, done)
            if lease.extended is None and lease.done == done < len(lease.records):
                self._leases.set_deadline(lease, started + allowed)
        return ()

    def settled(self, event: Settled, now: float) -> Sequence[Effect]:
        """Takes acks and nacks from outside of callbacks."""
        stale = 0
        over: list[Lease] = []
        for settlement in event.settlements:
            lease = settlement.lease
            if lease.state is LeaseState.RUNNING and settlement.done >= lease.done:
                lease.early = settlement
            elif lease.state is LeaseState.KEPT and settlement.done == lease.done:
                self._settle(settlement, now)
                over.append(lease)
            elif settlement.done >= lease.done:  # else the same ack was reported before
                stale += 1
        effects: list[Effect] = [Withdraw(over)] if over else []
        return [*effects, Stale(stale)] if stale else effects

    def acked(self, lease: Lease, record: Record) -> bool:
        """Finishes a record acked in a callback that may still run; returns False if the ack comes too late.

        Also returns True if the record was finished under this lease before.
        """
        offset = record.offset()
        if lease.state is not LeaseState.OVER and offset < lease.records[0].offset():
            return True  # the report belongs to the inline run from which the lease was narrowed
        at = next((at for at, each in enumerate(lease.records) if each.offset() == offset), None)
        if at is None or (at >= lease.done and self.over(lease)):
            return False
        self._finish(lease, max(lease.done, at + 1))
        if lease.state is LeaseState.KEPT:
            self._leases.close(lease)
            self._home.free(lease)
        return True

    def _settle(self, settlement: Settlement, now: float) -> None:
        lease = settlement.lease
        if settlement.acked:
            self._finish(lease, lease.done + 1)
            self._leases.close(lease)
            self._home.free(lease)
        else:
            self._home.fail(lease, Why.NACKED, settlement.delay, settlement.error, now)

    def extended(self, event: Extended, now: float) -> Sequence[Effect]:
        """Moves the deadline of a lease."""
        lease = event.lease
        if lease.state not in (LeaseState.RUNNING, LeaseState.KEPT) or lease.epoch != self.epoch:
            return (Stale(1),)
        if event.done < lease.done:
            return (Stale(1),)
        self._finish(lease, event.done)
        lease.extended = now + event.seconds
        self._leases.set_deadline(lease, lease.extended)
        return ()

    def expire(self, now: float) -> Sequence[Effect]:
        """Ends or expires the leases whose deadlines have passed."""
        expired = self._leases.due(now)
        for lease in expired:
            if lease.state is LeaseState.KEPT:
                self._home.fail(lease, Why.EXPIRED, None, "", now)
            else:
                lease.state = LeaseState.EXPIRED
        return (Withdraw(expired),) if expired else ()

    def _finish(self, lease: Lease, done: int) -> None:
        news = self._leases.advance(lease, done)
        if news:
            self._home.finish(lease, news)
