"""A replay that dies, at any moment: the next replay finishes it, and each letter comes back once."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from kafka_pubsub import DeadLetterProgress, PubSub, PubSubError, Subscription
from kafka_pubsub.dead_letters import replay
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome, Step
from kafka_pubsub.subscribe.admin import exclusive_session
from kafka_pubsub.subscribe.admin.exclusive_session import ExclusiveSession, session_group
from kafka_pubsub.subscribe.dead_letters.processed_marks import MARKS, MARKS_TOPIC, ProcessedMarks
from tests.unit.crashing import Crash, another
from tests.unit.dying import POLICY, QUICK, deliver, kill, publish, until

DEAD_LETTERS = 6


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PAUSE", 0.0)
    monkeypatch.setattr(replay, "BATCH", 2)
    monkeypatch.setattr(exclusive_session, "PATIENCE", 0.3)


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead", partitions=2)
    made = ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=POLICY, ack_deadline=60
    )
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(DEAD_LETTERS)))
    kill(made, DEAD_LETTERS)
    return made


def came_back_once(sub: Subscription) -> None:
    assert list(sub.dead_letters()) == []
    counts = Counter(message.data for message in deliver(sub, DEAD_LETTERS))
    assert set(counts.values()) == {1}


class DieAt(FaultPlan):
    """Ends the process before its n-th request or step of a transaction, counted from 0."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.dead = False

    def _live(self) -> None:
        if self._left == 0:
            self.dead = True
        if self.dead:  # does nothing any more, not even tidy up
            raise Crash
        self._left -= 1

    def request(self, operation: str, name: str) -> PubSubError | None:
        self._live()
        return None

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        self._live()
        return RequestOutcome.DONE


def test_a_process_may_die_before_any_of_its_steps(
    ps: PubSub, cluster: MemoryCluster, sub: Subscription
) -> None:
    at = 0
    while True:
        plan = DieAt(at)
        dying = another(cluster, plan)
        try:
            dying.subscription("billing").replay_dead_letters()
        except Crash:
            cluster.evict(session_group("billing"))  # its session is over
        if not plan.dead:
            break
        at += 5 if at < 30 else 3  # each time from where the last replay died, with its remains
    assert at > 30
    sub.replay_dead_letters()
    came_back_once(sub)


def ends(cluster: MemoryCluster) -> tuple[int, int]:
    """Where the marks' topic ends for readers of committed records, and where its log ends."""
    with cluster.changed:
        log = cluster.log(MARKS)
        return log.stable_end, log.end


def replayed_behind_an_open_transaction(cluster: MemoryCluster, sub: Subscription) -> None:
    """Some letters are marked, behind another subscription's transaction that is still open in the marks' topic."""

    def another_begins(progress: DeadLetterProgress) -> None:
        if progress == DeadLetterProgress("replaying", 2, 4):
            cluster.append(MARKS_TOPIC, 0, b"value", b"key", transaction="another's")

    ids = [dead_letter.id for dead_letter in sub.dead_letters()][:4]
    assert sub.replay_dead_letters(ids=ids, on_progress=another_begins).count == 4
    stable, end = ends(cluster)
    assert stable < end


def test_marks_that_do_not_show_yet_are_waited_for(cluster: MemoryCluster, sub: Subscription) -> None:
    replayed_behind_an_open_transaction(cluster, sub)
    assert len(list(sub.dead_letters())) == 4, "who only looks doesn't wait"
    later = threading.Timer(0.3, lambda: cluster.finish_transaction(MARKS_TOPIC, 0, "another's", True))
    later.start()
    assert sub.replay_dead_letters().count == 2
    later.join()
    came_back_once(sub)


class LateCommit(FaultPlan):
    """The first commit arrives when its author has long gone on, or died."""

    def __init__(self) -> None:
        self.late = True

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is Step.COMMIT and self.late:
            self.late = False
            return RequestOutcome.LATE
        return RequestOutcome.DONE

    def lateness(self) -> float:
        return 0.5


def test_a_commit_that_comes_late_brings_nothing_back_twice(
    cluster: MemoryCluster, sub: Subscription
) -> None:
    with another(cluster, LateCommit()) as other:
        assert other.subscription("billing").replay_dead_letters().count == DEAD_LETTERS
    came_back_once(sub)


# -- the rules are needed: without any of them something above goes wrong ----------------------------------------


def test_without_the_fence_a_late_commit_doubles(
    cluster: MemoryCluster, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: ProcessedMarks, end: int) -> None:
        stable = ends(cluster)[0]
        real(self, min(end, stable))
        if stable < end:
            until(lambda: len(set(ends(cluster))) == 1)

    real = ProcessedMarks.read
    monkeypatch.setattr(ExclusiveSession, "fence", lambda self: None)
    monkeypatch.setattr(ProcessedMarks, "read", read)
    with another(cluster, LateCommit()) as other:
        other.subscription("billing").replay_dead_letters()
    with pytest.raises(AssertionError):
        came_back_once(sub)


def test_without_waiting_for_the_marks_they_are_missed(
    cluster: MemoryCluster, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed_behind_an_open_transaction(cluster, sub)
    real = ProcessedMarks.read
    monkeypatch.setattr(ProcessedMarks, "read", lambda self, end: real(self, min(end, ends(cluster)[0])))
    sub.replay_dead_letters()
    cluster.finish_transaction(MARKS_TOPIC, 0, "another's", True)
    with pytest.raises(AssertionError):
        came_back_once(sub)


def test_without_marks_in_the_transaction_a_resumed_replay_doubles(
    cluster: MemoryCluster, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessedMarks, "with_more", lambda *_: [])

    sub.replay_dead_letters(ids=[next(iter(sub.dead_letters())).id])
    monkeypatch.undo()
    sub.replay_dead_letters()
    with pytest.raises(AssertionError):
        came_back_once(sub)
