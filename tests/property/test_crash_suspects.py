"""Suspects: nothing starts unnoted, suspects alone, and only the culprit is blamed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pubsub.subscribe.formats import notes
from kafka_pubsub.subscribe.formats.notes import NO_DOUBT, Doubt, Notes
from kafka_pubsub.subscribe.partition.crash_suspects import ROW, CrashSuspects, TrialLock
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState
from tests.partition_ids import P
from tests.support import FakeBody


def twice(end: int) -> Doubt:
    """Two owners have ended in disorder."""
    return Doubt(end, twice=True)


def test_one_end_in_disorder_is_no_reason_for_care_a_second_without_progress_is() -> None:
    first = NO_DOUBT.next(3, clean=False, reach=50)
    assert first == Doubt(50)
    assert CrashSuspects(TrialLock(), Notes(((3, 5),)), first).end == 0, "full speed"
    assert first.next(20, clean=True, reach=80) == first, "a rebalance settles nothing"
    assert first.next(20, clean=False, reach=80) == Doubt(80, twice=True)
    assert first.next(50, clean=False, reach=80) == Doubt(80), "there was progress"
    assert first.next(50, clean=True, reach=80) == NO_DOUBT
    assert Doubt(80, twice=True).next(20, clean=True, reach=90) == Doubt(80, twice=True)
    assert NO_DOUBT.next(50, clean=False, reach=50) == NO_DOUBT, "nothing can have been started"


def test_the_doubt_is_over_when_the_position_has_passed_it() -> None:
    for doubt in (Doubt(50), twice(50)):
        each = CrashSuspects(TrialLock(), Notes(((3, 5),)), doubt)
        each.passed(49)
        assert each.doubt == doubt
        each.passed(50)
        assert (each.doubt, each.end, each.left) == (NO_DOUBT, 0, set())


def lease_of(*offsets: int) -> Lease:
    return Lease(P[0], 1, b"k%d" % offsets[0], [FakeBody(1, offset) for offset in offsets], 1)


class World:
    """Processes in turn work off a log; some messages kill the process that handles them.

    The log holds a commit's notes; a process starts messages in any order, and dies with whichever message kills it.
    """

    def __init__(self, size: int, killers: set[int], partitions: int) -> None:
        self.partitions = partitions
        self.size = size
        self.killers = killers
        self.finished: list[set[int]] = [set() for _ in range(partitions)]
        self.stored: list[Notes] = [notes.NOTHING] * partitions
        self.clean = True
        self.crashes: dict[tuple[int, int], int] = {}
        self.dead: set[tuple[int, int]] = set()

    def live(self, draw: st.DataObject, patience: int) -> bool:
        """A process's life; False if it was killed."""
        turn = TrialLock()
        parts = []
        for number in range(self.partitions):
            end = 0 if self.clean else self.size
            each = CrashSuspects(turn, self.stored[number], twice(end))
            parts.append(each)
            if each.culprit is not None:
                self.blame(number, each)
        self.clean = False
        given: list[tuple[int, Lease]] = []
        admitted: set[tuple[int, int]] = set()
        for _ in range(patience):
            number = draw.draw(st.integers(0, self.partitions - 1))
            each = parts[number]
            act = draw.draw(st.sampled_from(["lease", "lease", "commit", "end", "end"]))
            if act == "lease":
                self.lease(draw, number, each, admitted, given)
            elif act == "commit":
                self.commit(number, each, given)
            elif given and not self.end(draw, parts, given):
                return False
            each.check()
        return all(self.finish(draw, number, parts, admitted, given) for number in range(self.partitions))

    def finish(
        self,
        draw: st.DataObject,
        number: int,
        parts: list[CrashSuspects],
        admitted: set[tuple[int, int]],
        given: list[tuple[int, Lease]],
    ) -> bool:
        """The process lives on, if it lives, until a partition is worked off."""
        for _ in range(self.size + 1):
            for offset in range(self.size):
                self.lease_one(number, parts[number], offset, admitted, given)
            for at, each in enumerate(parts):
                self.commit(at, each, given)
            while given:
                if not self.end(draw, parts, given):
                    return False
        return True

    def blame(self, number: int, each: CrashSuspects) -> None:
        assert each.culprit is not None
        place = (number, each.culprit)
        self.crashes[place] = self.crashes.get(place, 0) + 1
        if self.crashes[place] >= 5:
            self.dead.add(place)
            self.finished[number].add(each.culprit)
            each.finished([each.culprit])
        each.culprit = None
        # The move that counts the crash, and the notes without the trial, are in a single transaction.
        self.stored[number] = self.stored[number]._replace(trial=None)

    def lease(
        self,
        draw: st.DataObject,
        number: int,
        each: CrashSuspects,
        admitted: set[tuple[int, int]],
        given: list[tuple[int, Lease]],
    ) -> None:
        self.lease_one(number, each, draw.draw(st.integers(0, self.size - 1)), admitted, given)

    def lease_one(
        self,
        number: int,
        each: CrashSuspects,
        offset: int,
        admitted: set[tuple[int, int]],
        given: list[tuple[int, Lease]],
    ) -> None:
        if offset in self.finished[number] or (number, offset) in admitted:
            return
        crashes = self.crashes.get((number, offset), 0)
        if not each.concerns(offset) and not crashes:
            given.append((number, lease_of(offset)))
        elif each.takes(offset):
            run = self.run(number, each, offset, admitted)
            each.admit(lease_of(*run), run, crashes)
            admitted.update((number, at) for at in run)
            return
        else:
            return
        admitted.add((number, offset))

    def run(self, number: int, each: CrashSuspects, offset: int, admitted: set[tuple[int, int]]) -> list[int]:
        """The messages that are handed out with that message, as if all were of a key."""
        run = [offset]
        for at in range(offset + 1, min(self.size, offset + each.together(offset))):
            taken = at in self.finished[number] or (number, at) in admitted
            if taken or self.crashes.get((number, at)) or not each.concerns(at):
                break
            run.append(at)
        return run if not self.crashes.get((number, offset)) else run[:1]

    def commit(self, number: int, each: CrashSuspects, given: list[tuple[int, Lease]]) -> None:
        each.try_next()
        self.stored[number] = each.note((), 0)
        for lease in each.answered(accepted=True):
            offsets = [record.offset() for record in lease.records]
            assert set(offsets) <= set(notes.offsets(self.stored[number])), "started unnoted"
            if not each.left.isdisjoint(offsets):
                assert [self.stored[number].trial] == offsets, "a suspect is not alone"
            given.append((number, lease))

    def end(self, draw: st.DataObject, parts: list[CrashSuspects], given: list[tuple[int, Lease]]) -> bool:
        at = draw.draw(st.integers(0, len(given) - 1))
        number, lease = given[at]
        offset = lease.records[lease.done].offset()
        if (number, offset) in {(at % self.partitions, at // self.partitions) for at in self.killers}:
            return False
        self.finished[number].add(offset)
        parts[number].finished([offset])
        lease.done += 1
        if lease.done == len(lease.records):
            del given[at]
            lease.state = LeaseState.OVER
            parts[number].over(lease)
        return True


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 19), max_size=3), st.data())
def test_only_the_killers_are_dead_lettered(killers: set[int], data: st.DataObject) -> None:
    """However the lives go: the killers go to the dead letters, and nobody else."""
    world = World(10, killers, 2)
    for _ in range(12 * (len(killers) + 1)):
        if world.live(data, 6):
            break
    guilty = {(at % 2, at // 2) for at in killers}
    assert world.dead == guilty
    assert all(len(finished) == 10 for finished in world.finished)


def test_a_key_is_noted_several_messages_at_a_time_and_what_is_acked_is_noted_no_more() -> None:
    each = CrashSuspects(TrialLock(), notes.NOTHING, twice(100))
    together = each.together(3)
    assert together > 1
    lease = lease_of(3, 4, 5)
    each.admit(lease, [3, 4, 5])
    assert each.note((), 0).started == ((3, 6),)
    assert each.answered(accepted=True) == [lease]
    each.finished([3])
    assert each.note((), 0).started == ((4, 6),)
    each.over(lease)
    assert each.note((), 0) == notes.NOTHING


def test_notes_are_shared_by_the_keys_and_suspects_go_alone() -> None:
    each = CrashSuspects(TrialLock(), notes.NOTHING, twice(10_000))
    at = keys = 0
    while each.room > 0:
        run = list(range(at, at + each.together(at)))
        each.admit(lease_of(*run), run)
        at, keys = at + len(run), keys + 1
    assert keys > 10
    each.check()
    suspicious = CrashSuspects(TrialLock(), Notes(((3, 5),)), twice(10))
    assert suspicious.together(3) == 1
    assert suspicious.together(4) == 1
    assert suspicious.together(2) == 1, "what follows in its key may be a suspect"
    assert suspicious.together(5) > 1


def test_notes_that_fill_all_room_keep_nobody_from_being_tried() -> None:
    each = CrashSuspects(TrialLock(), Notes(((10, 10 + notes.MOST),)), twice(1000))
    assert each.room == 0
    # An earlier message of a suspect's key was acked, but that was never committed.
    assert each.takes(3)
    first = lease_of(3)
    each.admit(first, [3])
    assert not each.takes(4), "one at a time: those that wait make room"
    assert each.takes(12)
    each.try_next()
    assert each.note((), 0).trial == 3
    assert each.answered(accepted=True) == [first]
    each.check()
    each.over(first)
    each.finished([3, 10])
    assert each.room == 1


def test_a_crash_leaves_few_suspects_and_others_go_on_beside_them() -> None:
    first = CrashSuspects(TrialLock(), notes.NOTHING, twice(10_000))
    at = 0
    while first.room > 0:
        first.admit(lease_of(at), [at])
        at += 1
    left = first.note((), 0)
    assert len(notes.offsets(left)) < notes.MOST / 2
    second = CrashSuspects(TrialLock(), left, twice(10_000))
    assert second.room > 0
    assert second.together(at) > 1


def test_an_unanswered_note_starts_nothing() -> None:
    each = CrashSuspects(TrialLock(), notes.NOTHING, twice(10))
    lease = lease_of(3)
    each.admit(lease, [3])
    each.note((), 0)
    assert each.answered(accepted=False) == []
    assert each.waiting, "it waits for the next commit"
    assert each.note((), 0).started == ((3, 4),)
    assert each.answered(accepted=True) == [lease]


def test_a_takeover_after_a_clean_stop_suspects_nobody() -> None:
    each = CrashSuspects(TrialLock(), Notes(((3, 5),), 3), NO_DOUBT)
    assert not each.left
    assert each.culprit is None
    assert not each.concerns(3)


def test_one_trial_at_a_time_over_two_partitions() -> None:
    turn = TrialLock()
    first, second = (CrashSuspects(turn, Notes(((3, 5),)), twice(10)) for _ in range(2))
    leases = [lease_of(3), lease_of(3)]
    for each, lease in zip((first, second), leases, strict=True):
        each.admit(lease, [3])
        assert not each.waiting
        each.try_next()
    assert (first.waiting, second.waiting) == (True, False)
    assert not second.wants_turn
    assert first.note((), 0) == Notes(((3, 5),), 3)
    first.answered(accepted=True)
    first.finished([3])
    first.over(leases[0])
    second.try_next()
    assert not second.waiting, "the log still names the first one"
    assert first.waiting
    assert first.note((), 0) == Notes(((4, 5),))
    second.try_next()
    assert not second.waiting, "nobody knows yet whether it does"
    first.answered(accepted=True)
    second.try_next()
    assert second.note((), 0) == Notes(((3, 5),), 3)
    second.close()
    first.check()
    assert turn.owner is None


def test_trials_of_one_log_go_in_a_row_and_then_it_is_a_neighbours_turn() -> None:
    turn = TrialLock()
    each, other = (CrashSuspects(turn, Notes(((0, 2 * ROW),)), twice(2 * ROW)) for _ in range(2))
    for offset in range(2 * ROW):
        each.admit(lease_of(offset), [offset])
    other.admit(lease_of(0), [0])
    for trial in range(ROW):
        each.try_next()
        assert each.note((), 0).trial == trial
        (lease,) = each.answered(accepted=True)
        each.finished([trial])
        each.over(lease)
        assert not other.wants_turn
    assert not each.wants_turn
    assert each.note((), 0).trial is None
    each.answered(accepted=True)
    assert other.wants_turn
    assert each.wants_turn


@pytest.mark.parametrize("over_first", [False, True])
def test_a_revoked_partition_keeps_nobody_waiting_for_its_trial(over_first: bool) -> None:
    """Nothing more is committed for the message, so nothing will tell that its trial is over."""
    turn = TrialLock()

    def holds() -> bool:
        return turn.owner is each

    each = CrashSuspects(turn, Notes(((3, 4),)), twice(10))
    lease = lease_of(3)
    each.admit(lease, [3])
    each.try_next()
    each.note((), 0)
    assert each.answered(accepted=True) == [lease]
    if over_first:
        each.over(lease)
    assert holds()
    each.unstarted()
    if not over_first:
        assert holds(), "its handler runs"
        each.over(lease)
    assert not holds()
    each.returned()
    each.admit(again := lease_of(3), [3])
    each.try_next()
    each.note((), 0)
    assert each.answered(accepted=True) == [again]
    each.over(again)
    assert holds()


def test_a_revoke_takes_back_what_no_callback_has_seen() -> None:
    each = CrashSuspects(TrialLock(), Notes(((3, 4),)), twice(10))
    waiting_suspects, unnoted, sent = lease_of(3), lease_of(4), lease_of(5)
    each.admit(sent, [5])
    each.note((), 0)
    each.admit(unnoted, [4])
    each.admit(waiting_suspects, [3])
    assert set(each.unstarted()) == {waiting_suspects, unnoted, sent}
    assert each.answered(accepted=True) == []
    assert notes.offsets(each.note((), 0)) == [3]


def test_what_is_passed_is_forgotten() -> None:
    each = CrashSuspects(TrialLock(), Notes(((3, 4),)), twice(10))
    each.passed(9)
    assert each.concerns(9)
    each.passed(10)
    assert not each.concerns(9)
    assert not each.left


def test_a_neighbour_partitions_innocent_is_not_blamed_each_time() -> None:
    """The worst schedule: whenever the killer may run, it runs before anybody else's handler ends."""
    world = World(6, {1}, 2)  # the first message of partition 1
    for life in range(40):
        turn = TrialLock()
        parts = [CrashSuspects(turn, stored, twice(6 if life else 0)) for stored in world.stored]
        for number, each in enumerate(parts):
            if each.culprit is not None:
                world.blame(number, each)
        admitted: set[tuple[int, int]] = set()
        given: list[tuple[int, Lease]] = []
        while sum(map(len, world.finished)) < 12:
            for number, each in enumerate(parts):
                for offset in range(6):
                    world.lease_one(number, each, offset, admitted, given)
                world.commit(number, each, given)
            if (1, 0) in {(number, lease.records[0].offset()) for number, lease in given}:
                break
            for number, lease in given:
                lease.state = LeaseState.OVER
                world.finished[number].add(lease.records[0].offset())
                parts[number].over(lease)
            given.clear()
        else:
            break
    assert world.dead == {(1, 0)}
    assert max((count for place, count in world.crashes.items() if place != (1, 0)), default=0) <= 1


def test_a_culprit_stays_one_until_its_move_has_committed() -> None:
    each = CrashSuspects(TrialLock(), Notes(((3, 4),), 3), twice(10))
    assert each.culprit == 3
    assert each.note((), 0) == Notes(((3, 4),), 3)
