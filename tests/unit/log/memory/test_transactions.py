"""Transactions under a virtual clock: what shows when, who dies where, and what comes too late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryCluster, RequestOutcome, Step, VirtualClock
from kafka_pubsub.log.memory.transactions import MemoryTransactions, Steps
from kafka_pubsub.model import Committed, Ending, Membership, NewRecord, Outcome, TopicPartition
from tests.support import commit
from tests.unit.log.memory.driver import SESSION, Process, cluster_of

MAIN, RETRY = TopicPartition("t", 0), TopicPartition("t.retry", 0)
WRITER = "writer"
OLD, NEW = Committed(1, "old"), Committed(2, "new")


class Script(FaultPlan):
    """What was told to go wrong."""

    def __init__(self) -> None:
        self.outcomes: dict[Step, deque[RequestOutcome]] = {}
        self.commits: deque[RequestOutcome] = deque()
        self.delays: dict[TopicPartition | str, float] = {}
        self.late = 2.0
        self.before_commit: Callable[[], object] = lambda: None
        self.fetch_limit: int | None = None

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        outcomes = self.outcomes.get(step)
        return outcomes.popleft() if outcomes else RequestOutcome.DONE

    def commit(self, group: str, member: str, positions: object) -> RequestOutcome:
        self.before_commit()
        return self.commits.popleft() if self.commits else RequestOutcome.DONE

    def marker_delay(self, transactional_id: str, target: TopicPartition | str) -> float:
        return self.delays.get(target, 0.0)

    def lateness(self) -> float:
        return self.late

    def read_limit(self, group: str, member: str, limit: int) -> int:
        return limit if self.fetch_limit is None or member != "record-fetch" else self.fetch_limit

    def fail(self, step: Step, answer: RequestOutcome) -> None:
        self.outcomes[step] = deque([answer])


class Scene:
    """A process that owns a topic and its retry topic."""

    def __init__(self) -> None:
        self.cluster: MemoryCluster
        self.clock: VirtualClock
        self.cluster, self.clock = cluster_of("t", "t.retry", partitions=1)
        self.plan = Script()
        self.owner = self.process("a")
        self.writer = self.owner.backend.transactions(WRITER)

    def process(self, name: str) -> Process:
        process = Process(self.cluster, name, "t", "t.retry", faults=self.plan)
        process.read()
        process.read()
        return process

    def membership(self, process: Process | None = None) -> Membership:
        found = (process or self.owner).reader.membership()
        assert found is not None
        return found

    def transact(self, value: bytes = b"v", position: Committed = NEW) -> Outcome:
        return self.writer.transact(
            [NewRecord("t.retry", 0, b"k", value)], {MAIN: position}, self.membership()
        )

    def steps(self, position: Committed = NEW) -> Steps:
        assert isinstance(self.writer, MemoryTransactions)
        return self.writer.steps([NewRecord("t.retry", 0, b"k", b"v")], {MAIN: position}, self.membership())

    def committed(self) -> Committed:
        return self.owner.reader.committed([MAIN])[MAIN]

    def unstable(self) -> Committed:
        return self.owner.reader.committed_unstable([MAIN])[MAIN]

    def high(self) -> int:
        return self.owner.reader.high_watermarks([RETRY])[RETRY]

    def stable(self) -> int:
        return self.owner.backend.admin.last_stable_offsets("t.retry")[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def _until(steps: Steps, wanted: Step) -> None:
    while next(steps) is not wanted:
        pass


def test_an_answered_transaction_shows_when_its_markers_come(scene: Scene) -> None:
    scene.plan.delays = {RETRY: 1.0, "g": 2.0}
    assert scene.transact().ending is Ending.STORED
    assert (scene.high(), scene.stable(), scene.owner.read()) == (1, 0, [])
    assert scene.owner.reader.positions([RETRY])[RETRY].offset == 0
    with pytest.raises(DeadlineExceeded):
        scene.committed()
    with pytest.raises(DeadlineExceeded):
        scene.owner.backend.admin.group_offsets("g", "t")
    scene.clock.advance(1.0)
    assert (scene.high(), scene.stable(), scene.owner.read()) == (2, 2, [b"v"])
    with pytest.raises(DeadlineExceeded):
        scene.committed()
    scene.clock.advance(1.0)
    assert scene.committed() == NEW


def test_positions_may_show_before_the_records(scene: Scene) -> None:
    """Why nothing is delivered before the retry log was read up to its high watermark."""
    scene.plan.delays = {RETRY: 1.0}
    scene.transact()
    assert scene.committed() == NEW
    assert scene.owner.read() == []
    assert scene.owner.reader.positions([RETRY])[RETRY].offset == scene.stable() < scene.high()


def test_the_next_transaction_waits_for_the_markers_of_the_one_before(scene: Scene) -> None:
    scene.plan.delays = {RETRY: 100.0, "g": 100.0}
    scene.transact(b"one", OLD)
    scene.plan.delays = {RETRY: 100.0}
    scene.transact(b"two", NEW)
    assert scene.committed() == NEW
    assert scene.owner.read() == [b"one"]


@pytest.mark.parametrize("step", [Step.START, Step.WRITE, Step.OFFSETS, Step.COMMIT])
def test_who_dies_before_the_commit_has_stored_nothing_once_it_is_fenced(scene: Scene, step: Step) -> None:
    commit(scene.owner.reader, {MAIN: OLD})
    steps = scene.steps()
    _until(steps, step)
    steps.close()
    successor = scene.owner.backend.transactions("successor")
    if step is Step.COMMIT:
        assert scene.unstable() == OLD
        with pytest.raises(DeadlineExceeded):
            scene.committed()
    successor.fence(WRITER)
    assert (scene.committed(), scene.owner.read()) == (OLD, [])
    assert scene.stable() == scene.high() == (0 if step in (Step.START, Step.WRITE) else 2)
    assert scene.transact().ending is (Ending.STORED if step is Step.START else Ending.ABORTED)


def test_who_dies_before_the_answer_has_stored_everything(scene: Scene) -> None:
    scene.plan.delays = {RETRY: 5.0, "g": 5.0}
    steps = scene.steps()
    _until(steps, Step.ANSWER)
    steps.close()
    scene.owner.backend.transactions("successor").fence(WRITER)
    assert (scene.committed(), scene.owner.read()) == (NEW, [b"v"])


def test_what_nobody_ends_is_aborted_when_the_coordinator_looks(scene: Scene) -> None:
    scene.clock.advance(3)  # the broker looks when full tens of seconds are over
    _until(scene.steps(), Step.COMMIT)
    scene.clock.advance(16)
    with pytest.raises(DeadlineExceeded):
        scene.committed()
    scene.clock.advance(1)
    assert scene.committed() == Committed(None, "")
    assert scene.stable() == scene.high() == 2


def test_a_writer_that_took_too_long_does_not_know_and_stored_nothing(scene: Scene) -> None:
    steps = scene.steps()
    _until(steps, Step.COMMIT)
    scene.clock.advance(20)
    assert _rest(steps).ending is Ending.UNKNOWN
    assert scene.committed() == Committed(None, "")
    scene.owner.reader.read(1, 0)  # the member was silent itself for as long
    owner = scene.process("b")
    scene.owner = owner
    assert scene.transact().ending is Ending.STORED


@pytest.mark.parametrize("step", [Step.START, Step.WRITE, Step.OFFSETS])
@pytest.mark.parametrize("answer", [RequestOutcome.REFUSED, RequestOutcome.ANSWER_LOST])
def test_a_step_that_fails_before_the_commit_aborts(scene: Scene, step: Step, answer: RequestOutcome) -> None:
    scene.plan.fail(step, answer)
    outcome = scene.transact()
    assert outcome.ending is Ending.ABORTED
    assert isinstance(
        outcome.reason, BrokerUnavailable if answer is RequestOutcome.REFUSED else DeadlineExceeded
    )
    assert scene.committed() == Committed(None, "")
    assert scene.transact(b"again").ending is Ending.STORED
    assert scene.owner.read() == [b"again"]


def test_an_abort_that_fails_leaves_it_open_until_the_writer_starts_anew(scene: Scene) -> None:
    for anew in (lambda: scene.writer.fence(WRITER), lambda: scene.transact(b"next", OLD)):
        scene.plan.fail(Step.OFFSETS, RequestOutcome.ANSWER_LOST)
        scene.plan.fail(Step.ABORT, RequestOutcome.REFUSED)
        assert scene.transact().ending is Ending.ABORTED
        with pytest.raises(DeadlineExceeded):
            scene.committed()
        anew()
        scene.committed()
    assert scene.committed() == OLD
    assert scene.owner.read() == [b"next"]


def test_a_writer_whose_steps_were_left_in_the_middle_starts_anew(scene: Scene) -> None:
    _until(scene.steps(), Step.COMMIT)
    assert scene.transact().ending is Ending.ABORTED
    assert scene.transact(b"anew").ending is Ending.STORED
    assert scene.owner.read() == [b"anew"]


@pytest.mark.parametrize(
    ("answer", "stored"), [(RequestOutcome.REFUSED, False), (RequestOutcome.ANSWER_LOST, True)]
)
def test_a_commit_without_an_answer_is_either(scene: Scene, answer: RequestOutcome, stored: bool) -> None:
    scene.plan.fail(Step.COMMIT, answer)
    assert scene.transact().ending is Ending.UNKNOWN
    scene.writer.fence(WRITER)
    assert scene.committed() == (NEW if stored else Committed(None, ""))
    assert scene.owner.read() == ([b"v"] if stored else [])


def test_a_commit_that_comes_late_counts_unless_its_writer_was_shut_out(scene: Scene) -> None:
    for fenced in (False, True):
        scene.plan.fail(Step.COMMIT, RequestOutcome.LATE)
        position = Committed(10 + fenced, "")
        assert scene.transact(b"late", position).ending is Ending.UNKNOWN
        with pytest.raises(DeadlineExceeded):
            scene.committed()
        if fenced:
            scene.writer.fence(WRITER)
        scene.clock.advance(2)
        assert scene.committed() == Committed(10, "")
        scene.owner.read()


def test_a_plain_commit_inside_a_transaction_wins_over_its_positions(scene: Scene) -> None:
    steps = scene.steps(NEW)
    _until(steps, Step.COMMIT)
    assert commit(scene.owner.reader, {MAIN: OLD}) == {MAIN: None}
    assert _rest(steps).ending is Ending.STORED
    assert scene.committed() == OLD


def test_a_plain_commit_before_the_positions_does_not(scene: Scene) -> None:
    steps = scene.steps(NEW)
    _until(steps, Step.OFFSETS)
    commit(scene.owner.reader, {MAIN: OLD})
    _rest(steps)
    assert scene.committed() == NEW


def test_a_transaction_may_go_on_while_a_plain_commit_is_on_its_way(scene: Scene) -> None:
    steps = scene.steps(NEW)
    scene.plan.before_commit = lambda: _until(steps, Step.COMMIT)
    assert commit(scene.owner.reader, {MAIN: OLD}) == {MAIN: None}
    _rest(steps)
    assert scene.committed() == OLD


def test_a_late_plain_commit_is_judged_when_it_arrives(scene: Scene) -> None:
    scene.plan.commits = deque([RequestOutcome.LATE])
    answers: dict[TopicPartition, PubSubError | None] = {}
    scene.owner.reader.commit({MAIN: OLD}, answers.update)
    assert not scene.owner.reader.settle()
    assert scene.committed() == Committed(None, "")
    scene.transact(b"v", NEW)
    assert not answers
    scene.clock.advance(2)
    assert scene.committed() == OLD, "it wins over what was known later"
    assert isinstance(answers[MAIN], DeadlineExceeded)
    assert scene.owner.reader.settle()

    scene.plan.commits = deque([RequestOutcome.LATE])
    commit(scene.owner.reader, {MAIN: Committed(9, "from the past")})
    second = scene.process("b")
    scene.owner.read()
    second.read()
    scene.owner.read()
    scene.clock.advance(2)
    assert scene.unstable() == OLD, "its generation is over"


def test_a_membership_is_refused_once_the_group_has_moved_on(scene: Scene) -> None:
    before = scene.membership()
    second = scene.process("b")
    assert scene.transact().ending is Ending.STORED, "the rebalance is open, the generation stands"
    scene.owner.read()
    assert scene.owner.reader.membership() is None
    second.read()
    scene.owner.read()
    assert scene.membership() != before
    stale = scene.writer.transact([], {MAIN: Committed(3, "stale")}, before)
    assert stale.ending is Ending.ABORTED
    assert isinstance(stale.reason, FailedPrecondition)
    loser = next(process for process in (scene.owner, second) if MAIN not in process.owned)
    fresh = scene.writer.transact([], {MAIN: Committed(4, "fresh")}, scene.membership(loser))
    assert fresh.ending is Ending.STORED
    assert scene.unstable() == Committed(4, "fresh")


def test_who_is_thrown_out_has_no_membership_when_it_hears_of_it(scene: Scene) -> None:
    before = scene.membership()
    scene.clock.advance(SESSION + 1)
    seen: list[object] = []
    original = scene.owner.lost

    def lost(partitions: object) -> None:
        seen.append(scene.owner.reader.membership())
        original([])

    scene.owner.lost = lost  # type: ignore[method-assign]
    scene.owner.read()
    assert seen == [None]
    assert scene.writer.transact([], {MAIN: NEW}, before).ending is Ending.ABORTED


def test_what_is_open_in_a_deleted_topic_ends_quietly(scene: Scene) -> None:
    steps = scene.steps()
    _until(steps, Step.COMMIT)
    scene.owner.backend.admin.delete_topic("t.retry")
    assert _rest(steps).ending is Ending.STORED


def test_a_fetch_may_bring_less_than_was_asked_for(scene: Scene) -> None:
    for number in range(5):
        scene.cluster.append("t", 0, b"%d" % number)
    fetch = scene.owner.backend.record_fetch()
    scene.plan.fetch_limit = 2
    assert [record.value() for record in fetch.fetch(MAIN, [4, 2, 3], 100, 1).records] == [b"2", b"3"]


def _rest(steps: Steps) -> Outcome:
    while True:
        try:
            next(steps)
        except StopIteration as over:
            outcome: Outcome = over.value
            return outcome
