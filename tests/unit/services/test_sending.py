"""A service that decides its next transaction while a large transaction is under way, which then may fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log import transaction_runner
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.log.transaction_runner import TransactionRunner
from kafka_pubsub.services import engine, sending
from kafka_pubsub.services.transactions import ServiceTransactions
from tests.support import until
from tests.unit.delays.test_role import bodies
from tests.unit.services.test_troubles import TIERS

MESSAGES = 150


class Watched(FaultPlan):
    """A commit waits until the next transaction is sent; of these commits every third is refused."""

    def __init__(self) -> None:
        self.sent = self.begun = self.ahead = 0
        self.refused = 0

    @contextmanager
    def watch(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        send, attempt = ServiceTransactions.send, ServiceTransactions._transact

        def sends(*given, **options):  # type: ignore[no-untyped-def]
            self.sent += 1
            return send(*given, **options)

        def attempting(*given):  # type: ignore[no-untyped-def]
            self.begun += 1
            return attempt(*given)

        with monkeypatch.context() as patch:
            patch.setattr(ServiceTransactions, "send", sends)
            patch.setattr(ServiceTransactions, "_transact", attempting)
            yield

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is not Step.COMMIT:
            return RequestOutcome.DONE
        for _ in range(20):
            if self.sent > self.begun:
                break
            threading.Event().wait(0.01)
        else:
            return RequestOutcome.DONE
        self.ahead += 1
        if self.ahead % 3:
            return RequestOutcome.DONE
        self.refused += 1
        return RequestOutcome.REFUSED


def test_what_was_decided_behind_a_failed_transaction_is_decided_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_LARGE", 1)
    monkeypatch.setattr(engine, "_WORK", 5)
    faults = Watched()
    with faults.watch(monkeypatch), PubSub.in_memory(MemoryBackend(faults=faults), services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        sub = ps.create_subscription("billing", "orders", message_ordering=True)
        got: list[bytes] = []

        def handle(message: Message) -> None:
            got.append(message.data)
            message.ack()

        with (
            DelayRouter(ps, tiers=3, partitions=1) as router,
            sub.pull(handle),
        ):
            for number in range(MESSAGES):
                topic.publish(b"%d" % number, ordering_key="k", delay=0.5)
            until(lambda: len(got) >= MESSAGES)
        counts = router.metrics()
    assert got == [b"%d" % number for number in range(MESSAGES)]
    assert faults.refused > 3
    assert faults.ahead > 10
    assert counts["home"] == counts["records"] == MESSAGES


class SmallTransactions(FaultPlan):
    """A transaction of more than `most` records gets no answer in time."""

    def __init__(self, most: int) -> None:
        self.most, self.written = most, 0

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is Step.WRITE:
            self.written += 1
            return RequestOutcome.DONE if self.written <= self.most else RequestOutcome.ANSWER_LOST
        self.written = 0
        return RequestOutcome.DONE


def test_a_transaction_that_gets_no_answer_is_halved_until_it_does() -> None:
    backend = MemoryBackend(faults=SmallTransactions(30))
    with PubSub.in_memory(backend, services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        ps._cluster.delay_topics.make(TIERS, 1)
        for number in range(300):
            topic.publish(b"%d" % number, ordering_key="k", delay=0.01)
        topic.flush(10)
        with DelayRouter(ps) as router:
            until(lambda: len(bodies(backend)) == 300)
            assert router.metrics()["aborted"] > 0
    assert bodies(backend) == [b"%d" % number for number in range(300)]


def test_a_transaction_is_bounded_in_bytes(backend: MemoryBackend, ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    ps._cluster.delay_topics.make(TIERS, 1)
    for number in range(60):
        topic.publish(bytes(900_000), ordering_key=f"k{number}", delay=0.01)
    topic.flush(30)
    with DelayRouter(ps) as router:
        until(lambda: len(bodies(backend)) == 60)
        assert router.metrics()["transactions"] >= 60 * 900_000 / (16 * 1024 * 1024)


def test_an_id_that_was_given_up_ends_after_errors_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_runner, "_TRY_AGAIN", 0.0)
    tries = []

    def fence(runner: TransactionRunner) -> None:
        tries.append(runner)
        if len(tries) < 3:
            raise KeyError("a bug")

    def close(runner: TransactionRunner) -> None:
        raise KeyError("another bug")

    monkeypatch.setattr(TransactionRunner, "fence", fence)
    given_up = ServiceTransactions(MemoryBackend(), "mine")
    with monkeypatch.context() as patch:
        patch.setattr(TransactionRunner, "close", close)
        given_up.give_up()
        until(lambda: given_up.ended)
    given_up.close()
    assert len(tries) == 3
    assert "a bug" in caplog.text
    assert "another bug" in caplog.text
