"""Dead letters over memory: listed, replayed once and in sequence, purged; the shell is real, threads included."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pubsub import (
    FailedPrecondition,
    Message,
    NotFound,
    PubSub,
    PubSubError,
    Subscription,
)
from kafka_pubsub.dead_letters import replay
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome, Step
from kafka_pubsub.subscribe.admin.exclusive_session import session_group
from tests.unit.crashing import another
from tests.unit.dying import deliver, kill, publish, until


def test_a_replayed_message_is_the_one_that_was_published(ps: PubSub, sub: Subscription) -> None:
    (message_id,) = publish(ps, ("k", b"1"))
    (dead_letter,) = kill(sub, 1)
    result = sub.replay_dead_letters()
    assert (result.count, result.keys, result.skipped) == (1, 1, {})
    assert list(sub.dead_letters()) == []
    (message,) = deliver(sub, 1)
    assert (message.message_id, message.ordering_key, message.data) == (message_id, "k", b"1")
    assert (message.attributes, message.delivery_attempt) == ({"n": "1"}, 1)
    assert message.headers == [("n", b"1"), ("ps-replayed", b"1")]
    assert message.publish_time == dead_letter.publish_time


def test_what_fails_again_dies_again_and_says_how_often_it_was_replayed(
    ps: PubSub, sub: Subscription
) -> None:
    publish(ps, ("k", b"1"))
    (first,) = kill(sub, 1)
    sub.replay_dead_letters()
    (second,) = kill(sub, 1)
    assert second.id != first.id
    assert (second.replays, second.attempts, second.message_id) == (1, 5, first.message_id)
    sub.replay_dead_letters()
    assert deliver(sub, 1)[0].headers[-1] == ("ps-replayed", b"2")


def test_a_key_comes_back_in_the_order_in_which_it_was_published(ps: PubSub, sub: Subscription) -> None:
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(9)))
    dead_letters = kill(sub, 9)
    # the first message of each key dies once more, so that its letter lies behind its successors
    sub.replay_dead_letters(
        ids=[next(each.id for each in dead_letters if each.key == b"k%d" % k) for k in range(3)]
    )
    kill(sub, 9)
    sub.replay_dead_letters()
    messages = deliver(sub, 9)
    for key in ("k0", "k1", "k2"):
        numbers = [int(each.data) for each in messages if each.ordering_key == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 3


def test_what_is_parked_behind_comes_after_it(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    publish(ps, ("k", b"2"), ("k", b"3"))
    seen: list[bytes] = []

    def once(message: Message) -> None:
        message.nack(delay=0.5 if message.data == b"2" else 0)
        seen.append(message.data)

    with sub.pull(once):
        until(lambda: bool(seen))
    sub.replay_dead_letters()
    assert [message.data for message in deliver(sub, 3)] == [b"1", b"2", b"3"]


class FailOnce(FaultPlan):
    """Fails a single step of the n-th transaction of the replay; then all is well."""

    def __init__(self, number: int, step: Step, outcome: RequestOutcome) -> None:
        self._left, self._step, self._outcome = number, step, outcome

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is self._step and transactional_id.startswith("_kafka_pubsub.deadletter"):
            self._left -= 1
            if self._left == 0:
                return self._outcome
        return RequestOutcome.DONE


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (Step.WRITE, RequestOutcome.REFUSED),
        (Step.OFFSETS, RequestOutcome.ANSWER_LOST),
        (Step.COMMIT, RequestOutcome.REFUSED),
        (Step.COMMIT, RequestOutcome.ANSWER_LOST),
        (Step.COMMIT, RequestOutcome.LATE),
    ],
)
def test_whatever_becomes_of_a_transaction_each_dead_letter_comes_back_once(
    ps: PubSub,
    sub: Subscription,
    cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    step: Step,
    outcome: RequestOutcome,
) -> None:
    monkeypatch.setattr(replay, "BATCH", 4)
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(10)))
    kill(sub, 10)
    with another(cluster, FailOnce(number, step, outcome)) as other:
        assert other.subscription("billing").replay_dead_letters().count == 10
    assert list(sub.dead_letters()) == []
    messages = deliver(sub, 10)
    assert sorted(int(each.data) for each in messages) == list(range(10))


def test_a_replay_that_was_stopped_goes_on_without_doubling(
    ps: PubSub, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BATCH", 4)
    publish(ps, *((f"k{at % 3}", b"%d" % at) for at in range(10)))
    kill(sub, 10)

    def stop(progress: Any) -> None:
        if progress.phase == "replaying" and progress.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sub.replay_dead_letters(on_progress=stop)
    assert len(list(sub.dead_letters())) == 6
    assert sub.replay_dead_letters().count == 6
    deliver(sub, 10)


def test_of_two_at_once_one_is_refused(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    publish(ps, ("k", b"1"), ("k", b"2"))
    kill(sub, 2)
    refused: list[str] = []

    def meanwhile(progress: Any) -> None:
        if progress.phase == "replaying" and not refused:
            with another(cluster) as other, pytest.raises(FailedPrecondition) as error:
                other.subscription("billing").replay_dead_letters()
            refused.append(error.value.message)

    assert sub.replay_dead_letters(on_progress=meanwhile).count == 2
    assert "another client just now" in refused[0]
    deliver(sub, 2)


def test_who_was_shut_out_stores_nothing_more(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped for longer than its session goes on after another has done its work."""
    monkeypatch.setattr(replay, "BATCH", 2)
    publish(ps, ("k", b"1"), ("k", b"2"), ("k", b"3"), ("k", b"4"))
    kill(sub, 4)
    counts: list[int] = []

    def stalled(progress: Any) -> None:
        if progress.phase == "replaying" and progress.done == 2 and not counts:
            cluster.evict(session_group("billing"))
            with another(cluster) as other:
                counts.append(other.subscription("billing").replay_dead_letters().count)

    sub.replay_dead_letters(on_progress=stalled)
    assert counts == [2]
    deliver(sub, 4)


def test_a_subscription_or_topic_that_is_gone_is_named(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    with pytest.raises(FailedPrecondition, match=r"repartitioned|no dead-letter policy"):
        ps.create_subscription("plain", "orders").replay_dead_letters()
    with pytest.raises(NotFound, match="dead-letter topic 'nowhere'"):
        list(sub.dead_letters(topic="nowhere"))
    ps.delete_topic("orders")
    with pytest.raises(FailedPrecondition, match="detached: its topic 'orders' was deleted"):
        sub.replay_dead_letters()
    ps.delete_subscription("billing")
    with pytest.raises(NotFound, match="'billing' not found"):
        sub.replay_dead_letters(topic="dead")
    (dead_letter,) = sub.dead_letters(topic="dead")
    assert dead_letter.problem == "subscription 'billing' is gone"
    assert sub.purge_dead_letters(topic="dead").count == 1


def test_without_a_retry_topic_it_says_how_to_get_one(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    record = backend.catalog.subscriptions()["billing"]
    backend.catalog.put_subscription(record.model_copy(update={"retry_topic": None}), record)
    with pytest.raises(
        FailedPrecondition, match=r"update_subscription\('billing', remake_retry_topic=True\)"
    ):
        sub.replay_dead_letters()


def test_while_the_topic_is_repartitioned_nothing_goes_back(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    publish(ps, ("k", b"1"))
    kill(sub, 1)
    with pytest.raises(PubSubError):
        ps.repartition_topic("orders", 3, timeout=0)
    assert backend.catalog.topics()["orders"].repartition is not None
    with pytest.raises(FailedPrecondition, match=r"being repartitioned.*replay when that is through"):
        sub.replay_dead_letters()
    assert len(list(sub.dead_letters())) == 1


# -- the plan ----------------------------------------------------------------------------------------------------
