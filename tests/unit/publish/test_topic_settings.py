"""What a publisher knows of its topic: asked when it must be; no caller waits for an answer that it doesn't need."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition, PubSubError
from kafka_pubsub.publish.topic_settings import PublishTarget, TargetWatch

PATIENCE = 30.0
SMALL, LARGE = PublishTarget(None, 100), PublishTarget(None, 200)


class Cluster:
    """Answers in turn; holds an answer back while `open` isn't set."""

    def __init__(self, *answers: PublishTarget | PubSubError) -> None:
        self.answers = list(answers)
        self.asked = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.now = 0.0

    def ask(self) -> PublishTarget:
        self.asked.set()
        assert self.open.wait(PATIENCE)
        answer = self.answers.pop(0)
        if isinstance(answer, PubSubError):
            raise answer
        return answer

    def watch(self) -> TargetWatch:
        return TargetWatch("orders", self.ask, lambda: self.now)


def test_a_caller_does_not_wait_while_a_known_answer_is_renewed() -> None:
    cluster = Cluster(SMALL, LARGE)
    watch = cluster.watch()
    assert watch.get() is SMALL
    cluster.open.clear()
    cluster.asked.clear()
    renewal = threading.Thread(target=watch.renew)
    renewal.start()
    assert cluster.asked.wait(PATIENCE)
    found: list[PublishTarget] = []
    caller = threading.Thread(target=lambda: found.append(watch.get()))
    caller.start()
    caller.join(PATIENCE)
    assert found == [SMALL]
    cluster.open.set()
    renewal.join(PATIENCE)
    assert watch.get() is LARGE


def test_all_callers_wait_for_the_answer_about_a_topic_in_doubt() -> None:
    cluster = Cluster(SMALL, LARGE)
    watch = cluster.watch()
    watch.get()
    watch.doubt()
    cluster.open.clear()
    cluster.asked.clear()
    found: list[PublishTarget] = []
    callers = [threading.Thread(target=lambda: found.append(watch.get())) for _ in range(3)]
    callers[0].start()
    assert cluster.asked.wait(PATIENCE)
    for caller in callers[1:]:
        caller.start()
    for caller in callers:
        # Time for one that wouldn't wait.
        caller.join(0.1)
    assert found == []
    cluster.open.set()
    for caller in callers:
        caller.join(PATIENCE)
    assert found == [LARGE] * 3
    assert cluster.answers == []


def test_a_refusal_is_asked_again_after_a_while_and_an_outage_keeps_the_last_answer() -> None:
    cluster = Cluster(SMALL, FailedPrecondition("no"), LARGE, BrokerUnavailable("away"))
    watch = cluster.watch()
    watch.get()
    with pytest.raises(FailedPrecondition, match="no"):
        watch.renew()
    with pytest.raises(FailedPrecondition, match="no"):
        watch.get()
    cluster.now = 1000.0
    assert watch.get() is LARGE
    assert watch.renew() is LARGE
    assert not watch.certain


def test_an_answer_in_doubt_is_kept_in_an_outage() -> None:
    cluster = Cluster(SMALL, BrokerUnavailable("away"), LARGE)
    watch = cluster.watch()
    watch.get()
    watch.doubt()
    assert watch.doubted
    assert watch.get() is SMALL
    assert not watch.certain
    watch.doubt()
    assert watch.get() is LARGE


def test_a_refusal_in_doubt_is_forgotten_in_an_outage() -> None:
    """The topic may exist by now, so messages wait for a broker."""
    cluster = Cluster(FailedPrecondition("no such topic"), BrokerUnavailable("away"), LARGE)
    watch = cluster.watch()
    with pytest.raises(FailedPrecondition):
        watch.get()
    watch.doubt()
    assert watch.get().ordering is None
    assert watch.renew() is LARGE


def test_a_doubt_that_comes_while_the_cluster_is_asked_waits_for_nothing_and_counts_afterwards() -> None:
    cluster = Cluster(SMALL, LARGE)
    watch = cluster.watch()
    cluster.open.clear()
    found: list[PublishTarget] = []
    caller = threading.Thread(target=lambda: found.append(watch.get()))
    caller.start()
    assert cluster.asked.wait(PATIENCE)
    doubting = threading.Thread(target=watch.doubt, daemon=True)
    doubting.start()
    doubting.join(PATIENCE)
    assert not doubting.is_alive(), "a doubt waits for an answer"
    cluster.open.set()
    caller.join(PATIENCE)
    assert found == [SMALL]
    assert watch.doubted
    assert watch.get() is LARGE


def test_a_question_that_changes_the_topic_puts_its_own_answer_not_in_doubt() -> None:
    """As the question about a lane that has to be made."""
    watch: TargetWatch

    def ask() -> PublishTarget:
        watch.doubt()
        return SMALL

    watch = TargetWatch("orders", ask, lambda: 0.0)
    found: list[PublishTarget] = []
    caller = threading.Thread(target=lambda: found.append(watch.get()), daemon=True)
    caller.start()
    caller.join(PATIENCE)
    assert found == [SMALL]
    assert not watch.doubted
    watch.doubt()
    assert watch.doubted


def test_two_questions_that_change_topics_at_the_same_time_both_get_their_answers() -> None:
    """As those about two lanes: each lane that is made puts the answers about all lanes in doubt."""
    both = threading.Barrier(2, timeout=PATIENCE)
    watches: list[TargetWatch] = []

    def ask() -> PublishTarget:
        both.wait()
        for each in watches:
            each.doubt()
        return SMALL

    watches += [TargetWatch(name, ask, lambda: 0.0) for name in ("jobs.lane.p0", "jobs.lane.p7")]
    found: list[PublishTarget] = []
    callers = [
        threading.Thread(target=lambda each=each: found.append(each.get()), daemon=True) for each in watches
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert found == [SMALL, SMALL]
