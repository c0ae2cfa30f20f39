"""librdkafka's clients that never close, and calls that never return, hold up nobody who closes."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.kafka import client_factory, reader, transactions
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.bounded_calls import Bounded, ask
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import Configuration
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.log.kafka.transactions import KafkaTransactions
from kafka_pubsub.log.ports import Admin
from tests.unit.log.kafka.test_reader_rebalance import Listener, ScriptedConsumer, ScriptedHandles
from tests.unit.log.kafka.test_transactions import MEMBERSHIP, POSITIONS, RECORDS, Producers

LIMIT = 0.05
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_factory, "_CLOSE_S", LIMIT)
    monkeypatch.setattr(transactions, "_CLOSE_S", LIMIT)
    monkeypatch.setattr(reader, "_CLOSE_DEADLINE", LIMIT)


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


class Client:
    """Closes when the test says so."""

    def __init__(self, close: Any) -> None:
        self.close = close


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_a_client_that_never_closes_is_left_behind(
    kind: str, never: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    close = getattr(ClientFactory(Configuration("localhost:1", {})), f"close_{kind}")
    with caplog.at_level(logging.WARNING, "kafka_pubsub"):
        close(Client(never.wait))
    assert [f"a {kind}" in said and "left behind" in said for said in caplog.messages] == [True]


def test_where_no_broker_has_ever_answered_a_close_is_not_waited_for(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A look for a host name may hold librdkafka's thread for long."""
    monkeypatch.setattr(client_factory, "_CLOSE_S", PATIENCE)
    monkeypatch.setattr(client_factory, "_UNREACHED_CLOSE_S", LIMIT)
    some = ClientFactory(Configuration("localhost:1", {}))
    some.reached = False
    with caplog.at_level(logging.WARNING, "kafka_pubsub"):
        some.close_producer(cast("Producer", Client(never.wait)))
    assert ["0.05 s" in said for said in caplog.messages] == [True]


def test_what_a_close_complains_of_reaches_who_closes_a_consumer_only() -> None:
    def complains() -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    some = ClientFactory(Configuration("localhost:1", {}))
    with pytest.raises(KafkaException):
        some.close_consumer(cast("Consumer", Client(complains)))
    some.close_producer(cast("Producer", Client(complains)))


def test_a_transaction_that_hangs_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    producers = Producers("commit_transaction")
    writer = KafkaTransactions(cast("ClientFactory", producers), cast("Admin", None), "id")
    under_way = threading.Thread(target=writer.transact, args=(RECORDS, POSITIONS, MEMBERSHIP), daemon=True)
    under_way.start()
    while not producers.made or "commit_transaction" not in producers.made[0].called:
        threading.Event().wait(0.001)
    with caplog.at_level(logging.WARNING, "kafka_pubsub"):
        writer.close()
    assert "closed while one is under way" in caplog.text
    producers.never.set()
    under_way.join()


def test_a_read_that_hangs_does_not_hold_up_the_end(
    never: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    def hangs() -> list[Any]:
        begun.set()
        never.wait()
        return []

    consumer = ScriptedConsumer()
    consumer.steps.append(hangs)
    scripted = ScriptedHandles(consumer)
    member = KafkaLogReader(scripted, KafkaAdmin(scripted), "g", "m", "classic")
    member.subscribe(["t"], Listener())
    reading = threading.Thread(target=member.read, args=(1, 0), daemon=True)
    reading.start()
    begun.wait()
    with caplog.at_level(logging.WARNING, "kafka_pubsub"):
        member.close()
    assert "a read hasn't returned" in caplog.text
    assert member.closed
    never.set()
    reading.join()
    member.close()


def test_an_admin_client_ends_at_the_close_though_it_is_in_use() -> None:
    """An error of a failed call does, until the collector comes; librdkafka's threads went on as long."""
    admin = KafkaAdmin(ClientFactory(Configuration("localhost:1", {})), deadline=LIMIT)
    with pytest.raises(BrokerUnavailable):
        admin.topic_names()
    client = admin._client
    assert client is not None
    admin.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.poll(0)


def test_an_admin_client_that_is_used_is_left_to_its_user() -> None:
    admin = KafkaAdmin(ClientFactory(Configuration("localhost:1", {})))
    client = admin._connect()
    admin.close()
    client.poll(0)


def test_a_call_that_fails_lets_its_client_go() -> None:
    class Client:
        def connect(self, _left: float) -> None:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    def fail() -> weakref.ref[Client]:
        client = Client()
        calls = Bounded("a test")
        with pytest.raises(BrokerUnavailable):
            ask(
                lambda left: calls.run(lambda: client.connect(left), left),
                "connect",
                address="127.0.0.1:1",
                trouble=Trouble(),
                deadline=0.2,
            )
        return weakref.ref(client)

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("answer", "in_time"), [(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True), (KafkaError._TIMED_OUT, False)]
)
def test_a_call_has_longer_only_while_a_broker_answers_that_it_loads(answer: int, in_time: bool) -> None:
    """As the first transaction of a new cluster on a busy machine."""
    tries = iter(range(100))

    def call(left: float) -> int:
        if next(tries) < 8:
            raise KafkaException(KafkaError(answer, retriable=True))
        return 8

    def make(loading: float) -> int:
        return ask(call, "open", address="127.0.0.1:1", trouble=Trouble(), deadline=0.0, loading=loading)

    with pytest.raises(PubSubError):
        make(0.0)
    if in_time:
        assert make(60.0) == 8
    else:
        with pytest.raises(PubSubError):
            make(60.0)
