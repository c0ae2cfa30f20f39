"""A transient producer: its settings, and a producer that never finds its broker again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import BrokerUnavailable, PublishError
from kafka_pubsub.log.kafka import transient_writer
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.transient_writer import KafkaTransientWriter, transient_settings
from tests.support import until


class Scripted:
    """A producer whose messages time out at the next poll; `finds`: whether the producer knows a broker."""

    def __init__(self, finds: bool) -> None:
        self.finds = finds
        self.closed = False
        self._queue: list[Any] = []

    def __len__(self) -> int:
        return len(self._queue)

    def produce(self, *arguments: Any) -> None:
        self._queue.append(arguments[4])

    def poll(self, timeout: float) -> int:
        queue, self._queue = self._queue, []
        for report in queue:
            report(KafkaError(KafkaError._MSG_TIMED_OUT), None)
        return len(queue)

    flush = poll

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None: ...

    def list_topics(self, topic: str = "", timeout: float = 0) -> Any:
        if not self.finds:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Asking:
    """A new client; `finds`: whether it knows a broker."""

    def __init__(self, finds: bool) -> None:
        self._finds = finds

    def list_topics(self, timeout: float) -> None:
        if not self._finds:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


class Producers:
    """Makes scripted producers: the first ones as told, the others find their brokers, as new clients do if `there`."""

    def __init__(self, *finds: bool, there: bool = True) -> None:
        self._finds, self._there = list(finds), there
        self.looks = 0
        self.made: list[Scripted] = []

    def producer(self, defaults: object, rules: object, on_error: object = None) -> Scripted:
        self.made.append(Scripted(self._finds.pop(0) if self._finds else True))
        return self.made[-1]

    def admin(self) -> Asking:
        return Asking(self._there)

    def close_admin(self, client: Asking) -> None:
        self.looks += 1

    def close_producer(self, producer: Scripted) -> None:
        producer.closed = True


def writer_over(producers: Producers, monkeypatch: pytest.MonkeyPatch) -> KafkaTransientWriter:
    monkeypatch.setattr(transient_writer, "LOST_S", 0.0)
    monkeypatch.setattr(transient_writer, "_RETIRE_S", 0.0)
    return KafkaTransientWriter(cast("ClientFactory", producers), Batching(), 1_000_000)


def give_up_one(log: KafkaTransientWriter) -> None:
    errors: list[Any] = []
    log.append("t", b"x", None, None, lambda error, record: errors.append(error))
    until(lambda: log.poll(0) or errors)
    assert isinstance(log.explain(errors[0]), PublishError)


def test_a_producer_that_lost_its_brokers_is_replaced_also_for_open_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producers = Producers(False)
    log = writer_over(producers, monkeypatch)
    channel = log.channel("t")
    give_up_one(log)
    until(lambda: log.poll(0) or len(producers.made) == 2, "a new producer")
    until(lambda: log.poll(0) or producers.made[0].closed, "the end of the old one")
    assert channel.quick is not None
    channel.quick("t", b"x", None, -1, lambda error, record: None, None, 0, None)
    assert len(producers.made[1]) == 1
    log.close()
    assert producers.made[1].closed


def test_it_is_replaced_during_a_flush_too(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = Producers(False)
    log = writer_over(producers, monkeypatch)
    give_up_one(log)
    until(lambda: log.flush(0) or len(producers.made) == 2, "a new producer")
    log.close()


def test_a_producer_that_finds_its_brokers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = Producers(True)
    log = writer_over(producers, monkeypatch)
    for _ in range(3):
        give_up_one(log)
    log.close()
    assert len(producers.made) == 1


def test_a_producer_waits_for_brokers_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    producers = Producers(False, there=False)
    log = writer_over(producers, monkeypatch)
    give_up_one(log)
    until(lambda: log.poll(0) or producers.looks, "a look")
    log.close()
    assert len(producers.made) == 1


def test_errors_say_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    log = writer_over(Producers(), monkeypatch)
    assert (
        "given up; it may be in the topic or not"
        in log.explain(KafkaException(KafkaError(KafkaError._PURGE_INFLIGHT))).message
    )
    assert (
        "may be in the topic or not" in log.explain(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)).message
    )
    known = BrokerUnavailable("away")
    assert log.explain(known) is known
    with pytest.raises(PublishError):
        raise log.explain("odd")
    log.close()


@pytest.mark.parametrize("latency", [0.001, 60])
def test_what_gives_up_a_message_cannot_be_configured_away(latency: float) -> None:
    defaults, rules = transient_settings(Batching(max_latency=latency), 1000)
    assert rules["acks"] == 1
    assert rules["enable.idempotence"] is False
    assert rules["max.in.flight"] == 1
    assert rules["message.timeout.ms"] == 1000
    assert float({**defaults, **rules}["linger.ms"]) <= 500
