"""The final commit of a partition in good order: no message that started here is blamed for a crash."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.model import Ending
from kafka_pubsub.subscribe.formats import ack_map, notes
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, Doubt, Notes
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, Deliver, Effect, StoreMoves
from kafka_pubsub.subscribe.partition.events import (
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    LeaseOutcome,
    LeaseReport,
    LeasesReported,
    MovesAnswered,
    RetryCaughtUp,
    Returned,
    Revoked,
    Tick,
)
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.partition.partition import Partition
from kafka_pubsub.subscribe.partition.settings import EVERYTHING, Found, LogStart, Rules, Start
from tests.partition_ids import P
from tests.support import FakeBody

#: Messages that the last owner may have read.
READ = 3


class Owned:
    """A partition that was taken over; the log takes every commit. `found`: what the last owner's commit named."""

    def __init__(self, *, clean: bool = False, found: Notes = notes.NOTHING) -> None:
        doubt = NO_DOUBT if clean else Doubt(READ, twice=True)
        home = LogStart(0, notes=found, doubt=doubt, end=EVERYTHING)
        start = Start(P[0], 1, 1, CommitBoth(0, "", Commit(0, "")), Found("t", "id", home))
        self.partition = Partition(start, Rules(ordered=True, subscription="s"), lambda: 0.5)
        self.now = 0.0
        self.do(RetryCaughtUp(0))
        self.pass_time()
        self.do(Fetched([FakeBody(1, at, b"k%d" % at) for at in range(READ)]))

    def do(self, event: Event) -> Sequence[Effect]:
        effects = self.partition.handle(event, self.now)
        self.partition.check()
        return effects

    def pass_time(self) -> list[Lease]:
        """A second, whose commits the log takes; returns the leases that waited for them."""
        self.now += 1.0
        started: list[Lease] = []
        for effect in self.do(Tick()):
            if isinstance(effect, CommitBoth):
                started += _leases(self.do(CommitAnswered(True)))
        return started

    def started(self) -> list[Lease]:
        """The messages that begin, at once or when they are noted."""
        return [*_leases(self.do(Demand(9, 9))), *self.pass_time()]

    def nack(self, lease: Lease) -> None:
        self.do(LeasesReported([LeaseReport(lease, 0, LeaseOutcome.NACKED)]))


def _leases(effects: Sequence[Effect]) -> list[Lease]:
    return [lease for effect in effects if isinstance(effect, Deliver) for lease in effect.leases]


def told(effects: Sequence[Effect]) -> AckMap:
    """What the only commit among these says of main."""
    (commit,) = [effect for effect in effects if isinstance(effect, CommitBoth)]
    found = ack_map.decode(commit.metadata, commit.offset)
    assert found is not None
    return found


def test_the_final_commit_is_sent_though_nothing_has_changed_and_names_nothing() -> None:
    owned = Owned(clean=True)
    assert len(owned.started()) == READ
    owned.pass_time()
    last = told(owned.do(Revoked()))
    assert (last.clean, last.notes) == (True, notes.NOTHING)


def test_what_was_noted_because_the_last_owner_died_is_no_suspect_after_a_clean_stop() -> None:
    owned = Owned()
    assert len(owned.started()) == READ
    last = told(owned.do(Revoked()))
    assert (last.clean, last.notes) == (True, notes.NOTHING)


def test_a_suspect_stays_one_but_its_trial_is_not_named() -> None:
    owned = Owned(found=Notes(((1, 2),)))
    assert any(lease.records[0].offset() == 1 for lease in owned.started()), "it must be on trial"
    last = told(owned.do(Revoked()))
    assert (last.clean, last.notes) == (False, Notes(((1, 2),)))


def test_a_trial_that_goes_on_after_a_rebalance_is_named_again() -> None:
    owned = Owned(found=Notes(((1, 2),)))
    owned.started()
    owned.do(Revoked())
    owned.do(CommitAnswered(True))
    owned.do(Returned())
    owned.now += 1.0
    again = told(owned.do(Tick()))
    assert again.notes == Notes(((0, READ),), trial=1)


def test_a_culprit_whose_blame_is_not_stored_yet_stays_the_culprit() -> None:
    owned = Owned(found=Notes(((1, 2),), trial=1))
    assert any(isinstance(effect, StoreMoves) for effect in owned.do(Revoked())), "the blame is the last word"
    last = told(owned.do(MovesAnswered(Ending.ABORTED, {})))
    assert (last.clean, last.notes) == (False, Notes(((1, 2),), trial=1))


def test_a_final_commit_follows_moves_that_were_aborted_and_is_clean() -> None:
    owned = Owned(clean=True)
    for lease in owned.started():
        owned.nack(lease)
    assert any(isinstance(effect, StoreMoves) for effect in owned.do(Revoked()))
    last = told(owned.do(MovesAnswered(Ending.ABORTED, {})))
    assert (last.clean, last.notes) == (True, notes.NOTHING)
