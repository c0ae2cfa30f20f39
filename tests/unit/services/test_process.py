"""Messages that wait for a service that doesn't run: warnings, time-outs, `flush` and `close` say so, and soon."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pytest

from kafka_pubsub import DeadlineExceeded, FailedPrecondition, PubSub, Sent
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.publish import service_watch
from tests.support import until
from tests.unit.multicast.test_multicast import home

PATIENCE = 20.0
#: Seconds that a close may take on a busy machine: far less than the 30 for which futures wait.
SOON = 8.0


@pytest.fixture
def topics(ps: PubSub) -> PubSub:
    ps.create_topic("jobs")
    for name in "abc":
        ps.create_topic(name, causal=True)
    return ps


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


WAYS: Sequence[tuple[str, Callable[[PubSub], object]]] = [
    ("service router", lambda ps: ps.topic("jobs").publish(b"", delay=60)),
    ("service router", lambda ps: ps.topic("jobs").publish_many([b"now", {"data": b"", "delay": 60}])),
    ("service sequencer", lambda ps: ps.publish_multi(["a", "b"], b"")),
    ("service sequencer", lambda ps: ps.topic("a").publish(b"")),
]


@pytest.mark.parametrize(("service", "publish"), WAYS)
def test_publishing_without_the_service_is_warned_of(
    topics: PubSub,
    service: str,
    publish: Callable[[PubSub], object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_watch, "LOOK", 0.01)
    publish(topics)
    until(lambda: warnings(caplog))
    assert f"`kafka-pubsub {service}` starts one" in warnings(caplog)[0]


def test_publishing_without_need_of_a_service_starts_no_watch(topics: PubSub) -> None:
    before = set(threading.enumerate())
    topics.topic("jobs").publish(b"now").result(PATIENCE)
    topics.topic("jobs").publish(b"now", delay=0).result(PATIENCE)
    assert not [each.name for each in set(threading.enumerate()) - before if each.name.endswith("-watch")]


def test_a_time_out_says_what_the_message_waits_for(topics: PubSub) -> None:
    futures: list[Future[Sent] | Future[str]] = [
        topics.publish_multi(["a", "b"], b""),
        topics.topic("a").publish(b""),
    ]
    until(lambda: topics._cluster.multicast._publisher._idle, "the first message is staged")
    with pytest.raises(TimeoutError) as staged:
        futures[0].result(0.05)
    assert str(staged.value) == (
        "the message to a, b has no place in the order after 0.05 s. It is staged; is a sequencer running? "
        "`kafka-pubsub service sequencer` starts one"
    )
    topics._cluster.multicast._publisher._watch.look()
    with pytest.raises(TimeoutError, match=r"message to a .* It is not staged; no sequencer runs: `kaf"):
        futures[1].result(0.05)


def test_a_close_without_a_sequencer_is_quick_and_names_what_is_left(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    ps = PubSub.in_memory(backend, services=False)
    for name in "abc":
        ps.create_topic(name, causal=True)
    staged = [ps.publish_multi(["a", "b"], b"staged") for _ in range(2)]
    behind = ps.publish_multi(["b", "c"], b"behind")
    began = time.monotonic()
    ps.close()
    assert time.monotonic() - began < SOON
    for future in staged:
        with pytest.raises(FailedPrecondition, match="message staged: delivered by the next sequencer"):
            future.result(0)
    with pytest.raises(FailedPrecondition, match="not staged: never delivered; publish again"):
        behind.result(0)
    no_sequencer, *left = warnings(caplog)
    assert no_sequencer.startswith("no sequencer runs: ")
    assert left == [
        "closed with 2 messages to a, b staged: delivered by the next sequencer "
        "(`kafka-pubsub service sequencer` starts one)",
        "closed with 1 message to b, c not staged: never delivered; publish again",
    ]
    with PubSub.in_memory(backend, services=False) as other, Sequencer(other):
        other.topic("a").publish(b"later").result(PATIENCE)
        assert home(backend, "a") == [b"staged", b"staged", b"later"]


class NoStages(FaultPlan):
    """No publisher gets a transaction through, once the fault is `on`."""

    on = False

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        refused = self.on and step is Step.WRITE and "multicast.publisher" in transactional_id
        return RequestOutcome.REFUSED if refused else RequestOutcome.DONE


def test_a_close_gives_up_what_can_not_be_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_pubsub.multicast.publisher.CLOSING", 0.2)
    faults = NoStages()
    ps = PubSub.in_memory(MemoryBackend(faults=faults), services=False)
    ps.create_topic("a", causal=True)
    faults.on = True
    future = ps.topic("a").publish(b"")
    began = time.monotonic()
    ps.close()
    assert time.monotonic() - began < SOON
    with pytest.raises(
        FailedPrecondition, match="perhaps staged: no answer came, so perhaps delivered later"
    ):
        future.result(0)


def test_flush_waits_for_its_topic_only(topics: PubSub) -> None:
    """Without a sequencer, messages to causal topics have no outcome; messages of other topics aren't waited for."""
    jobs = topics.topic("jobs")
    topics.topic("a").publish(b"")
    topics.publish_multi(["a", "b"], b"")
    delayed = jobs.publish(b"", delay=600)
    jobs.flush(PATIENCE)
    assert delayed.done()
    topics.topic("c").flush(0)
    with pytest.raises(DeadlineExceeded, match=r"2 of the messages to causal topic 'a' .*service sequencer"):
        topics.topic("a").flush(0.05)
    with pytest.raises(DeadlineExceeded, match="1 of the messages to causal topic 'b'"):
        topics.topic("b").flush(0.05)


def test_flush_of_a_causal_topic_ends_with_the_place_in_the_order(topics: PubSub) -> None:
    futures = [topics.topic("a").publish(b"%d" % number) for number in range(5)]
    with Sequencer(topics):
        topics.topic("a").flush(PATIENCE)
        assert all(each.done() for each in futures)


class NoReports(FaultPlan):
    """Messages that wait for a router are never reported as stored."""

    def report_delay(self, topic: str, key: bytes | None) -> float:
        return 3600.0 if topic == INGEST else 0.0


def test_flush_waits_for_the_delayed_messages_of_its_topic() -> None:
    with PubSub.in_memory(MemoryBackend(faults=NoReports()), services=False) as ps:
        late, quick, many = (ps.create_topic(name, priorities=3) for name in ("late", "quick", "many"))
        late.publish(b"", delay=60, priority=2)
        many.publish_many([b"", {"data": b"", "delay": 60}])
        quick.publish(b"").result(PATIENCE)
        quick.flush(0.05)
        for topic in (late, many):
            with pytest.raises(DeadlineExceeded, match="still wait for the broker"):
                topic.flush(0.05)
        ps._cluster.delayed.publisher.close(0)
