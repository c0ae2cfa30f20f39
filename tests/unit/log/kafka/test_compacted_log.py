"""Reading the catalog while its topic's leader moves, and while no broker answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, NotFound
from kafka_pubsub.log.kafka import compacted_log
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.compacted_log import CatalogLog
from kafka_pubsub.model import TopicInfo


class Consumer:
    """A consumer that asks the remembered leader until its metadata is asked for again; the topic is empty."""

    def __init__(self) -> None:
        self.asked = 0
        self._knows_the_leader = False

    def assign(self, _: object) -> None: ...
    def resume(self, _: object) -> None: ...
    def pause(self, _: object) -> None: ...
    def seek(self, _: object) -> None: ...

    def consume(self, *_: object) -> list[object]:
        return [SimpleNamespace(error=lambda: END, offset=lambda: 0, key=lambda: None)]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        self.asked += 1
        if not self._knows_the_leader:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 0, 0

    def list_topics(self, *_: object, **__: object) -> None:
        self._knows_the_leader = True


END = KafkaError(KafkaError._PARTITION_EOF)


class Admin:
    """A client for which the catalog is there; notes the time limits of the requests."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    def topic(self, name: str, *, deadline: float) -> TopicInfo:
        self.deadlines.append(deadline)
        return TopicInfo(name, "id", 1, 1, 1000, {"cleanup.policy": "compact"})


def log_over(consumer: Consumer, admin: Admin, deadline: float) -> CatalogLog:
    handles = SimpleNamespace(
        check=lambda: None,
        address="nowhere",
        consumer=lambda *_: consumer,
        close_consumer=lambda _: None,
    )
    return CatalogLog(
        cast("ClientFactory", handles), cast("KafkaAdmin", admin), create=False, deadline=deadline
    )


def test_a_leader_that_has_moved_is_looked_for() -> None:
    consumer = Consumer()
    assert log_over(consumer, Admin(), 15).values() == {}
    assert consumer.asked == 2


class Silent(Consumer):
    """A consumer whose broker doesn't answer before `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_first, self.answer = threading.Event(), threading.Event()

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        self.asked_first.set()
        self.answer.wait(30)
        return 0, 0


def test_the_wait_for_another_thread_counts() -> None:
    """Without a broker, calls that stand in line would otherwise take their time in turn."""
    consumer = Silent()
    log = log_over(consumer, Admin(), deadline=0.1)
    first = threading.Thread(target=log.values, daemon=True)
    first.start()
    assert consumer.asked_first.wait(30)
    with pytest.raises(DeadlineExceeded, match="read the catalog"):
        log.values()
    assert first.is_alive()
    consumer.answer.set()
    first.join(30)
    assert log.values() == {}


class Forgetful(Consumer):
    """A consumer that has forgotten the topic, as librdkafka does after a while without a broker."""

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        self.asked += 1
        if self.asked == 1:
            time.sleep(0.1)
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, 0


def test_a_topic_that_is_looked_for_again_has_the_time_that_is_left() -> None:
    admin = Admin()
    assert log_over(Forgetful(), admin, deadline=5).values() == {}
    first, again = admin.deadlines
    assert again < first - 0.1


class Broker:
    """A broker with the catalog's log: its consumers, and the client that asks for the topic."""

    def __init__(self) -> None:
        self.records = [("topic:a", b"1"), ("topic:b", b"2")]
        self.away, self.denies, self.topic_id = False, False, "first"
        # How many transactions another writer ends.
        self.ended = 0

    def consumer(self, *_: object) -> Consumer:
        return Stored(self)

    def topic(self, name: str, *, deadline: float) -> TopicInfo:
        if self.denies:
            raise NotFound("no such topic")
        return TopicInfo(name, self.topic_id, 1, 1, 1000, {"cleanup.policy": "compact"})

    def log(self) -> CatalogLog:
        handles = SimpleNamespace(
            check=lambda: None,
            address="nowhere",
            consumer=self.consumer,
            close_consumer=lambda _: None,
            producer=lambda *_: Writer(self),
            init_transactions=lambda *_: None,
            release=lambda _: None,
        )
        return CatalogLog(
            cast("ClientFactory", handles), cast("KafkaAdmin", self), create=False, deadline=0.5
        )


class Stored(Consumer):
    """A consumer of a broker's log."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker, self._at = broker, 0

    def seek(self, partition: KafkaPartition) -> None:  # type: ignore[override]
        self._at = partition.offset

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self._broker.away:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        if self._broker.denies:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return 0, len(self._broker.records)

    def consume(self, *_: object) -> list[object]:
        at, self._at = self._at, len(self._broker.records)
        stored = [
            SimpleNamespace(
                error=lambda: None,
                offset=lambda place=place: place,
                key=lambda key=key: key.encode(),
                value=lambda value=value: value,
            )
            for place, (key, value) in enumerate(self._broker.records)
            if place >= at
        ]
        end = SimpleNamespace(error=lambda: END, offset=lambda: len(self._broker.records), key=lambda: None)
        return [*stored, end]


class Writer:
    """A producer of a broker's log."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, _: float) -> None:
        if self._broker.ended:
            self._broker.ended -= 1
            raise KafkaException(KafkaError(KafkaError._STATE, "must be aborted", txn_requires_abort=True))

    def produce(
        self, _: str, value: bytes, key: bytes, *, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        if self._broker.ended:
            on_delivery(KafkaError(KafkaError.INVALID_TXN_STATE), SimpleNamespace())
            return
        self._broker.records.append((key.decode(), value))
        on_delivery(None, SimpleNamespace(offset=lambda: len(self._broker.records) - 1))


def lose(broker: Broker, log: CatalogLog) -> None:
    """A read fails while the broker is away."""
    broker.away = True
    with pytest.raises(BrokerUnavailable):
        log.values()
    broker.away = False


def test_a_broker_that_starts_and_knows_no_topic_yet_takes_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream would take the empty catalog for the end of its subscription."""
    monkeypatch.setattr(compacted_log, "_GONE_AFTER", 0.3)
    broker = Broker()
    log = broker.log()
    stored = log.values()
    lose(broker, log)
    broker.denies = True
    threading.Timer(0.1, setattr, (broker, "denies", False)).start()
    assert log.values() is stored
    broker.denies = True
    assert log.values() == {}


def test_a_broker_that_starts_twice_and_shows_less_takes_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the end that it had stored seconds before it died, and the rest only later."""
    monkeypatch.setattr(compacted_log, "_GONE_AFTER", 0.3)
    broker = Broker()
    log = broker.log()
    stored = log.values()
    whole = broker.records
    for shown in (1, 0):
        lose(broker, log)
        broker.records = whole[:shown]
        assert log.values() is stored
        time.sleep(0.4)  # it counts anew after an outage
    broker.records = [*whole, ("topic:c", b"3")]
    assert set(log.values()) == {"topic:a", "topic:b", "topic:c"}
    broker.records = [("topic:d", b"4")]
    assert len(log.values()) == 3
    time.sleep(0.4)
    assert set(log.values()) == {"topic:d"}


def test_what_a_broker_has_lost_for_good_is_not_kept_though_others_have_written_since() -> None:
    broker = Broker()
    log = broker.log()
    assert len(log.values()) == 2
    lose(broker, log)
    broker.records = [("topic:a", b"1"), ("topic:d", b"4"), ("topic:e", b"5")]
    assert set(log.values()) == {"topic:a", "topic:d", "topic:e"}


def test_a_change_waits_for_a_broker_that_knows_no_topic_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_log, "_GONE_AFTER", 5)
    broker = Broker()
    log = broker.log()
    log.values()
    lose(broker, log)
    broker.denies = True
    threading.Timer(0.1, setattr, (broker, "denies", False)).start()
    log.change("topic:c", "topic 'c'", lambda values: b"%d" % len(values))
    assert log.values()["topic:c"] == b"2"


def test_a_topic_that_was_made_again_in_an_outage_is_read_from_its_start() -> None:
    broker = Broker()
    log = broker.log()
    assert len(log.values()) == 2
    lose(broker, log)
    broker.topic_id, broker.records = "second", [("topic:d", b"4"), ("topic:e", b"5"), ("topic:f", b"6")]
    assert set(log.values()) == {"topic:d", "topic:e", "topic:f"}


def test_a_change_whose_transaction_another_writer_has_ended_is_made_again() -> None:
    broker = Broker()
    broker.ended = 2
    log = broker.log()
    log.change("topic:c", "topic 'c'", lambda values: b"3")
    assert log.values()["topic:c"] == b"3"
