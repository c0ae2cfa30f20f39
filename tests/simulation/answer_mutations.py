"""Rules of acks whose answer somebody waits for, each taken out of the client: the simulation must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.durable_acks import Durability
from kafka_pubsub.subscribe.partition.effects import Unstored
from kafka_pubsub.subscribe.partition.events import Ask
from kafka_pubsub.subscribe.partition.lease_outcomes import LeaseReports
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.lease_runner import PENDING, LeaseRunner

__all__ = ["ANSWER_MUTATIONS"]

Patch = pytest.MonkeyPatch


def reported_at_the_ack(patch: Patch) -> None:
    """Who waits is told as soon as his ack is in the books."""
    real = Durability._take

    def take(self: Durability, ask: Ask, since: float) -> None:
        real(self, ask, since)
        self._tell([waiter for waiter, _ in self._booked], None)
        self._booked.clear()

    patch.setattr(Durability, "_take", take)


def reported_before_the_answer(patch: Patch) -> None:
    """Who waits is told when a commit with his ack is sent."""

    def made(self: Durability) -> None:
        for some in (self._doubtful, self._booked):
            self._tell([waiter for waiter, _ in some], None)
            some.clear()

    patch.setattr(Durability, "_made", made)


def reported_of_what_was_refused(patch: Patch) -> None:
    """A refused commit counts as an answer."""
    real = Durability._answered
    patch.setattr(Durability, "_answered", lambda self, accepted: real(self, True))


def refused_acks_forgotten(patch: Patch) -> None:
    """Acks in a commit that was refused don't go on with the next commit."""
    real = Durability._answered

    def answered(self: Durability, accepted: bool) -> None:
        real(self, accepted)
        self._doubtful.clear()

    patch.setattr(Durability, "_answered", answered)


def old_id_counts(patch: Patch) -> None:
    """An ack of a delivery that is over, while a newer delivery is out, is answered like any other."""

    def is_late(self: LeaseRunner, message: Message) -> bool:
        if message._state != PENDING or self.withdrawn:
            self.reports.stale()
        return message._state != PENDING

    def late(self: Durability, ask: Ask) -> None:
        self._commits.dirty = True
        self._booked.append((ask.waiter, 0.0))

    patch.setattr(LeaseRunner, "_late", is_late)
    patch.setattr(Durability, "_late", late)


def doubt_taken_for_loss(patch: Patch) -> None:
    """Whose ack is in a commit without an answer is told that the message comes again."""
    real = Durability._tell

    def tell(self: Durability, waiters: Sequence[object], why: Unstored | None) -> None:
        real(self, waiters, Unstored.GONE if why is Unstored.UNKNOWN else why)

    patch.setattr(Durability, "_tell", tell)


def nobody_reported_of_a_loss(patch: Patch) -> None:
    """Who waits when a partition is lost isn't told."""

    def lost(self: Durability) -> None:
        for each in (self._ended_inline, self._booked, self._sent, self._doubtful):
            each.clear()

    patch.setattr(Durability, "lost", lost)


def key_freed_by_the_ack(patch: Patch) -> None:
    """A lease is over with its last ack, though its handler still runs."""
    real = LeaseReports.acked

    def acked(self: LeaseReports, lease: Lease, record: Record) -> bool:
        counts = real(self, lease, record)
        if counts and lease in self._leases.active and lease.done == len(lease.records):
            self._leases.close(lease)
            self._outcomes.free(lease)
        return counts

    patch.setattr(LeaseReports, "acked", acked)


#: Each with the kinds of worlds that must show it: without a retry topic, with one.
ANSWER_MUTATIONS: Mapping[Callable[[Patch], None], Sequence[bool]] = {
    reported_at_the_ack: (False,),
    reported_before_the_answer: (False, True),
    reported_of_what_was_refused: (False, True),
    refused_acks_forgotten: (False,),
    old_id_counts: (False,),
    doubt_taken_for_loss: (False,),
    nobody_reported_of_a_loss: (False, True),
    key_freed_by_the_ack: (False,),
}
