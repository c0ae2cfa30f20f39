"""Which keys are held up, told from the log alone; and the effect of a release on parked messages."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    KeyState,
    Message,
    PubSub,
    RetryPolicy,
    Subscription,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.subscribe.admin import exclusive_session
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from tests.unit.crashing import another, checkpointed
from tests.unit.dying import PATIENCE, QUICK, Handler, deliver, publish, until


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusive_session, "PATIENCE", 0.3)


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    ps.create_topic("orders", partitions=2)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=QUICK, dead_letter=policy, ack_deadline=60
    )


def held_up(sub: Subscription) -> list[KeyState]:
    return sub.keys()


def parked(sub: Subscription) -> list[KeyState]:
    return [each for each in held_up(sub) if each.state == "parked"]


def park(sub: Subscription, *data: bytes) -> list[KeyState]:
    """Has these parked."""

    def bad(message: Message) -> None:
        if message.data in data:
            raise ValueError(f"no {message.data.decode()}")
        message.ack()

    with sub.pull(bad):
        until(lambda: len(parked(sub)) >= len(data))
    return parked(sub)


def test_nothing_is_held_up_at_first(sub: Subscription) -> None:
    assert sub.keys() == []
    assert sub.state().blocked == ()


def test_a_parked_key_says_why_and_since_when(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    publish(ps, ("good", b"1"), ("bad", b"2"), ("bad", b"3"))
    before = datetime.now(UTC) - timedelta(seconds=1)
    (state,) = park(sub, b"2")
    assert (state.ordering_key, state.state, state.attempt, state.crashes) == ("bad", "parked", 5, 0)
    assert (state.reason, state.error) == ("its attempts are used up", "ValueError: no 2")
    assert state.since is not None
    assert before < state.since < datetime.now(UTC)
    assert state.next_due is None
    with another(cluster) as other:  # a process that receives nothing
        assert other.subscription("billing").keys() == [state]
        (blocked,) = other.subscription("billing").state().blocked
        assert (blocked.key, blocked.offset) == (b"bad", state.offset)
        assert "parked until it is released" in blocked.reason


def test_a_key_in_backoff_says_when_it_comes_again(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("k", b"1"))
    ps.update_subscription("billing", retry=RetryPolicy(min_backoff=600, max_backoff=600))
    with sub.pull(lambda message: message.nack()):
        until(lambda: bool(sub.keys()))
        (state,) = sub.keys()
    assert (state.state, state.reason, state.attempt) == ("waiting", "nacked", 2)
    assert state.next_due is not None
    assert timedelta(seconds=500) < state.next_due - datetime.now(UTC) < timedelta(seconds=601)


def test_a_key_with_its_callback_is_leased(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    go, begun = threading.Event(), threading.Event()

    def slow(message: Message) -> None:
        if message.data == b"slow":
            begun.set()
            assert go.wait(PATIENCE)
        message.ack()

    with sub.pull(slow):
        (message_id,) = publish(ps, ("k", b"slow"))
        assert begun.wait(PATIENCE)
        # nothing else happens that would have to be committed
        with another(cluster) as other:
            watched = other.subscription("billing")
            until(lambda: [each.state for each in held_up(watched)] == ["leased"])
            (state,) = watched.keys()
        go.set()
        until(lambda: sub.keys() == [])
    assert (state.ordering_key, state.reason) == ("k", "with its callback")
    assert message_id == f"orders:{state.partition}:{state.offset}"


def test_what_waits_behind_is_counted(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("bad", b"0"))
    park(sub, b"0")
    publish(ps, *(("bad", b"%d" % at) for at in range(1, 150)))  # more than waits in memory
    with sub.pull(Handler()):
        until(lambda: sub.keys()[0].behind > 0)
    assert [each.ordering_key for each in held_up(sub)] == ["bad"]


def test_messages_without_a_key_stand_for_themselves(ps: PubSub, sub: Subscription) -> None:
    publish(ps, (None, b"1"), (None, b"2"))
    states = park(sub, b"1", b"2")
    assert [(each.key, each.behind) for each in states] == [(None, 0), (None, 0)]
    assert sub.release(ids=[f"{states[0].partition}:{states[0].offset}"]).count == 1
    assert len(deliver(sub, 1)) == 1
    assert len(parked(sub)) == 1


def test_an_unreadable_record_is_shown(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    cluster.append("orders.sub.billing.retry", 1, b"rubbish", b"k")
    (state,) = sub.keys()
    assert (state.key, state.partition, state.offset, state.state) == (b"k", 1, -1, "unreadable")
    assert "offset 0 of the retry partition: it has 0 ps-retry headers" in state.reason


def test_a_lost_retry_topic_is_no_reason_to_fail(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    backend.admin.delete_topic("orders.sub.billing.retry")
    assert sub.keys() == []


# -- releasing ---------------------------------------------------------------------------------------------------


def test_a_state_says_that_a_message_was_nacked_with_a_delay(ps: PubSub, sub: Subscription) -> None:
    publish(ps, ("slow", b"1"))
    with sub.pull(lambda message: message.nack(delay=3600)):
        until(
            lambda: (
                [each.reason for each in sub.state().blocked] == ["waiting: nacked with a delay, attempt 2"]
            )
        )


RETRY = "orders.sub.billing.retry"


class Reads(FaultPlan):
    """Counts how often records are fetched."""

    fetches = 0

    def request(self, operation: str, name: str) -> None:
        self.fetches += operation == "fetch"


def test_what_a_checkpoint_reports_is_not_held_up_whatever_it_reports(
    sub: Subscription, cluster: MemoryCluster, backend: MemoryBackend
) -> None:
    record, count = backend.catalog.subscriptions()["billing"], 3000
    for origin in range(2 * count):
        headers = retry_headers(None, RetryInfo(record.topic_id, 0, origin))
        cluster.append(RETRY, 0, b"", b"done" if origin % 2 else b"k%d" % origin, headers)
    checkpointed(cluster, RETRY, record.topic_id, *((at, at + 1) for at in range(1, 2 * count, 2)))
    reads = Reads()
    with PubSub.in_memory(MemoryBackend(cluster=cluster, faults=reads)) as other:
        states = other.subscription("billing").keys()
    assert {state.state for state in states} == {"waiting"}, "a checkpoint isn't unreadable"
    assert [state.offset for state in states] == list(range(0, 2 * count, 2))
    assert reads.fetches < 10, "one read for many gaps"
