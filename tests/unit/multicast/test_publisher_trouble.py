"""Multicasts while something is wrong: no sequencer, transactions whose ending isn't known, callbacks that fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_pubsub import (
    BrokerUnavailable,
    DeadLetterPolicy,
    DeadlineExceeded,
    FailedPrecondition,
    Message,
    PubSub,
    PubSubError,
    RetryPolicy,
)
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.multicast.batch import decode_batch
from kafka_pubsub.multicast.multicast import Multicast
from kafka_pubsub.multicast.publisher import sequencer_watch
from kafka_pubsub.multicast.records import decode_stage
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until
from tests.unit.crashing import another
from tests.unit.multicast.test_multicast import NAMES, home

PATIENCE = 20.0
SOON = RetryPolicy(min_backoff=0.01, max_backoff=0.02)


def test_without_a_sequencer_futures_say_so_and_what_is_staged_is_delivered_later(
    backend: MemoryBackend, topics: PubSub
) -> None:
    impatient = Multicast(backend, topics._cluster.topics.found, sequencer_watch(), timeout=0.2)
    staged = impatient.publish(["a", "b"], b"staged", None, None)
    behind = impatient.publish(["a", "c"], b"behind", None, None)
    with pytest.raises(DeadlineExceeded, match=r"is staged .* is a sequencer running\? .*service sequencer"):
        staged.result(PATIENCE)
    with pytest.raises(DeadlineExceeded, match=r"never delivered.*publish it again"):
        behind.result(PATIENCE)
    with Sequencer(topics):
        topics.publish_multi(["a", "b", "c"], b"later").result(PATIENCE)
        until(lambda: all(home(backend, name)[-1:] == [b"later"] for name in NAMES))
    impatient.close()
    assert [home(backend, name) for name in NAMES] == [
        [b"staged", b"later"],
        [b"staged", b"later"],
        [b"later"],
    ]


def test_a_backend_that_is_closed_first_ends_the_threads_and_what_waits(
    topics: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    sent = topics.publish_multi(["a", "b"], b"staged")
    publisher = topics._cluster.multicast._publisher
    assert publisher._tail is not None
    publisher._tail.close()
    with pytest.raises(FailedPrecondition, match="closed with the message"):
        sent.result(PATIENCE)
    for thread in publisher._threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert "can't be read" not in caplog.text
    with pytest.raises(FailedPrecondition, match="is closed: make a new one"):
        topics.publish_multi(["a", "b"], b"later")


class UnknownEndings(FaultPlan):
    """The first commits of publishers end so: their callers learn nothing."""

    def __init__(self, endings: Sequence[RequestOutcome]) -> None:
        self.endings = list(endings)

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if (
            step is Step.COMMIT
            and transactional_id.startswith("_kafka_pubsub.multicast.publisher-")
            and self.endings
        ):
            return self.endings.pop(0)
        return RequestOutcome.DONE

    def lateness(self) -> float:
        return 0.05


def stages(backend: MemoryBackend, inbox: str) -> list[bytes]:
    """The bodies of the messages that are staged in an inbox."""
    place = TopicPartition(inbox, 0)
    start, end = backend.admin.log_range(place)
    found = backend.record_fetch().fetch(place, range(start, end), 2**30, 1.0)
    batches = [each.value() for each in found.records if decode_stage(each.headers() or ()) is not None]
    return [message.data for batch in batches for message in decode_batch(batch) or ()]


@pytest.mark.parametrize(
    "ending",
    [RequestOutcome.ANSWER_LOST, RequestOutcome.REFUSED, RequestOutcome.LATE],
    ids=lambda each: each.value,
)
def test_a_stage_whose_ending_isnt_known_is_staged_once(ending: RequestOutcome) -> None:
    faults = UnknownEndings([])
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        for name in "ab":
            ps.create_topic(name, causal=True)
        faults.endings += [ending] * 3
        futures = []
        for number in range(3):
            futures.append(ps.publish_multi(["a", "b"], b"%d" % number))
            until(lambda: len(stages(backend, "a.inbox")) > number)  # noqa: B023
        assert not faults.endings
        assert stages(backend, "a.inbox") == stages(backend, "b.inbox") == [b"0", b"1", b"2"]
        with Sequencer(ps):
            for future in futures:
                future.result(PATIENCE)
        until(lambda: home(backend, "a") == home(backend, "b") == [b"0", b"1", b"2"])


def test_a_causal_topic_that_was_changed_stays_causal_in_an_outage(
    backend: MemoryBackend, topics: PubSub
) -> None:
    """Its messages wait for a sequencer; one that went to the topic directly would have no place in the order."""

    class Away(FaultPlan):
        outage = False

        def request(self, operation: str, name: str) -> PubSubError | None:
            return BrokerUnavailable("away") if self.outage and operation == "topic" else None

    plan = Away()
    with another(backend.cluster, plan) as other, Sequencer(topics):
        topic = other.topic("a")
        topic.publish(b"1").result(PATIENCE)
        other.update_topic("a", message_ordering=True)
        plan.outage = True
        topic.publish(b"2").result(PATIENCE)
    records = backend.cluster.log(TopicPartition("a", 0)).read(0, 10)
    named = [dict(each.headers() or ()) for each in records]
    assert [each.value() for each in records] == [b"1", b"2"]
    assert all("ps-clock" in headers for headers in named)


def test_nacked_messages_of_a_causal_topic_keep_the_order_of_their_key(topics: PubSub) -> None:
    sub = topics.create_subscription("s", "b", message_ordering=True, retry=SOON)
    tries: list[tuple[bytes, int]] = []

    def handle(message: Message) -> None:
        tries.append((message.data, message.delivery_attempt))
        if message.delivery_attempt < 3 and message.data in (b"k1", b"k3"):
            message.nack()
        else:
            message.ack()

    with Sequencer(topics), sub.pull(handle) as stream:
        for number in range(5):
            for key in "kq":
                body = f"{key}{number}".encode()
                topics.publish_multi(["a", "b"], body, ordering_key=key).result(PATIENCE)
        until(lambda: stream.stats.acked == 10)
    mine = [each for each in tries if each[0][:1] == b"k"]
    assert mine == [
        (b"k0", 1),
        *((b"k1", attempt) for attempt in (1, 2, 3)),
        (b"k2", 1),
        *((b"k3", attempt) for attempt in (1, 2, 3)),
        (b"k4", 1),
    ]
    assert [body for body, _ in tries if body[:1] == b"q"] == [f"q{number}".encode() for number in range(5)]


def test_a_message_of_a_causal_topic_becomes_a_dead_letter_and_comes_back(topics: PubSub) -> None:
    topics.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5)
    sub = topics.create_subscription("s", "b", message_ordering=True, retry=SOON, dead_letter=policy)
    with Sequencer(topics):
        sent = topics.publish_multi(["a", "b"], b"poison", ordering_key="k", handles=["c"]).result(PATIENCE)
        after = topics.publish_multi(["a", "b"], b"after", ordering_key="k").result(PATIENCE)
    got: list[Message] = []

    def handle(message: Message) -> None:
        got.append(message)
        message.nack() if message.data == b"poison" else message.ack()

    with sub.pull(handle) as stream:
        until(lambda: stream.stats.dead_lettered == 1 and stream.stats.acked == 1)
    assert [each.data for each in got] == [b"poison"] * 5 + [b"after"]
    assert {each.message_id for each in got} == {sent.message_id, after.message_id}
    (letter,) = sub.dead_letters()
    assert (letter.data, letter.ordering_key) == (b"poison", "k")
    assert sub.replay_dead_letters().count == 1
    (again,) = sub.receive(10, PATIENCE)
    assert (again.data, again.ordering_key, again.message_id) == (b"poison", "k", sent.message_id)
    assert again.handles == ("c",)


def test_a_causal_topic_may_take_dead_letters_of_none(topics: PubSub) -> None:
    """Dead letters are written by subscribers, and only sequencers write to causal topics."""
    topics.create_topic("orders")
    with pytest.raises(FailedPrecondition, match="topic 'a' is causal"):
        topics.create_subscription("s", "orders", dead_letter=DeadLetterPolicy(topic="a"))
