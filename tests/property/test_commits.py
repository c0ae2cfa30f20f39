"""I2 in the commits: one in flight, not before its time, and its contents are those of the books."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.partition.checkpoint_schedule import Checkpoints
from kafka_pubsub.subscribe.partition.commits import COMMIT_INTERVAL, Commits
from kafka_pubsub.subscribe.partition.crash_suspects import TrialLock
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, StoreMoves
from kafka_pubsub.subscribe.partition.finished_runs import FinishedRuns
from kafka_pubsub.subscribe.partition.log_side import LogSide
from kafka_pubsub.subscribe.partition.offsets import Offsets
from kafka_pubsub.subscribe.partition.settings import Found, Start
from tests.partition_ids import P
from tests.support import FakeBody

WRITER = 42
NOWHERE = CommitBoth(0, "", Commit(0, ""))


def commits_of(offsets: Offsets) -> Commits:
    """The commits of a partition without callbacks whose retry partition is empty."""
    start = Start(P[0], 1, WRITER, NOWHERE, Found("t", "id"))
    home = LogSide(start.found.home, offsets, (), TrialLock(), retry=False)
    retry = LogSide(start.found.retry, FinishedRuns(0), (), TrialLock(), retry=True)
    return Commits(start, home, retry, lambda: False)


class CommitsMachine(RuleBasedStateMachine):
    """Finishes, commits when due, answers yes or no, says final commits and comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets(0)
        self.commits = commits_of(self.offsets)
        self.finished: set[int] = set()
        self.received = 0
        #: Never on the grid, where rounding decides; `test_woken_when_due_...` is about that.
        self.now = 0.005
        self.last_made: float | None = None
        #: The contents of the log.
        self.log = NOWHERE

    @rule(count=st.integers(1, 6))
    def receive(self, count: int) -> None:
        self.offsets.receive([FakeBody(offset=self.received + at) for at in range(count)])
        self.received += count

    @precondition(lambda self: self.offsets.unfinished)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(list(self.offsets.unfinished)))
        self.offsets.finish([FakeBody(offset=offset)])
        self.finished.add(offset)
        self.commits.dirty = True

    def said(self, commit: CommitBoth, *, clean: bool) -> None:
        """The commit names exactly the finished offsets, no more and no less."""
        found = ack_map.decode(commit.metadata, commit.offset)
        assert found is not None
        assert (found.writer, found.clean) == (WRITER, clean)
        above = {offset for start, end in found.runs for offset in range(start, end)}
        assert set(range(commit.offset)) | above == self.finished
        assert commit.offset >= self.log.offset

    @staticmethod
    def cell(now: float) -> float:
        """All partitions commit on the same grid, so that busy partitions do so together."""
        return now // COMMIT_INTERVAL

    @rule(seconds=st.sampled_from([0.0, 0.03, COMMIT_INTERVAL, 5.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        waiting = self.commits.in_flight is not None
        if not self.commits.due(self.now):
            early = self.last_made is not None and self.cell(self.now) == self.cell(self.last_made)
            assert waiting or not self.commits.dirty or early, "a commit that is due isn't made"
            return
        assert not waiting, "two commits in flight"
        if self.last_made is not None:
            assert self.cell(self.now) > self.cell(self.last_made), "two commits in one interval of the grid"
        self.last_made = self.now
        commit = self.commits.announce(self.now)
        assert isinstance(commit, CommitBoth), "so little fits without a checkpoint"
        self.said(commit, clean=False)

    @precondition(lambda self: self.commits.in_flight is not None)
    @rule(accepted=st.booleans())
    def answer(self, accepted: bool) -> None:
        commit = self.commits.in_flight
        assert commit is not None
        self.commits.answered(accepted=accepted)
        if accepted:
            self.log = commit
        else:
            assert self.commits.dirty, "a refused commit leaves its content to the next"
        assert self.commits.in_flight is None

    @rule(accepted=st.booleans())
    def a_second_answer_changes_nothing(self, accepted: bool) -> None:
        if self.commits.in_flight is None:
            before = (self.commits.stored, self.commits.dirty)
            self.commits.answered(accepted=accepted)
            assert (self.commits.stored, self.commits.dirty) == before

    @precondition(lambda self: self.commits.in_flight is None)
    @rule()
    def final_commit(self) -> None:
        """At a revoke, whatever the time; nothing if there is nothing to say."""
        dirty = self.commits.dirty
        commit = self.commits.final_commit(clean=True)
        assert (commit is not None) == dirty
        if commit is not None:
            self.said(commit, clean=True)

    @invariant()
    def books_agree(self) -> None:
        assert self.commits.stored == self.log
        due = self.commits.due_at()
        assert (due is None) == (not self.commits.dirty or self.commits.in_flight is not None)
        if due is not None:
            assert self.commits.due(due)
            assert not self.commits.due(due - 0.001)

    def teardown(self) -> None:
        """Nothing is forgotten: when the log answers, it knows all finished messages."""
        if self.commits.in_flight is not None:
            self.answer(accepted=False)
        self.final_commit()
        if self.commits.in_flight is not None:
            self.answer(accepted=True)
        known = ack_map.decode(self.log.metadata, self.log.offset)
        above = {offset for start, end in (known.runs if known else ()) for offset in range(start, end)}
        assert set(range(self.log.offset)) | above == self.finished


TestCommits = CommitsMachine.TestCase


def test_woken_when_due_the_next_commit_is_a_whole_interval_later() -> None:
    commits = commits_of(Offsets(0))
    now = 0.0
    for _ in range(2000):
        commits.announce(now)
        commits.answered(accepted=False)
        due = commits.due_at()
        assert due is not None
        assert due - now == pytest.approx(COMMIT_INTERVAL)
        now = due


def test_a_final_commit_replaces_what_was_never_answered() -> None:
    offsets = Offsets(0)
    commits = commits_of(offsets)
    offsets.receive([FakeBody(offset=0)])
    offsets.finish([FakeBody(offset=0)])
    commits.dirty = True
    commits.announce(0.0)
    last = commits.final_commit(clean=True)
    assert last is not None
    assert last.offset == 1


def test_a_map_that_outgrew_its_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "wanted", lambda self, size, now: False)
    offsets = Offsets(0)
    records = [FakeBody(offset=offset) for offset in range(2 * ack_map.CAPACITY)]
    offsets.receive(records)
    offsets.finish(records[1::2])
    with pytest.raises(InvariantViolated, match="I5"):
        commits_of(offsets).transaction((), 0.0)


@settings(max_examples=10, deadline=None)
@given(
    window=st.sampled_from([500, 2000, 5000]), each=st.sampled_from([50, 300, 2000]), seed=st.integers(0, 99)
)
def test_beside_one_old_message_checkpoints_are_rare(window: int, each: int, seed: int) -> None:
    """Each tells of so many runs that weren't told before, and each run holds a record that finished since."""
    random, offsets = Random(seed), Offsets(0)
    commits = commits_of(offsets)
    waiting: list[int] = []
    written = received = done = 0
    for turn in range(1, 21):
        fresh = range(received, received + window - len(waiting))
        received = fresh.stop
        offsets.receive([FakeBody(offset=offset) for offset in fresh])
        waiting += fresh[1:] if turn == 1 else fresh  # the first message never ends
        random.shuffle(waiting)
        for offset in waiting[-each:]:
            offsets.finish([FakeBody(offset=offset)])
        done += len(waiting[-each:])
        del waiting[-each:]
        commits.dirty = True
        checkpoint = isinstance(commits.transaction((), turn * COMMIT_INTERVAL), StoreMoves)
        written += checkpoint
        commits.answered(accepted=True, checkpoint=1000 + turn if checkpoint else None)
    bare = 40  # characters that aren't runs
    told = ((ack_map.CAPACITY - ack_map.NOTED) // 2 - bare) // 2
    assert written * told <= done
