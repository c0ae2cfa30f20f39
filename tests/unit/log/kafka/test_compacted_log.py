"""Reading the catalog while its topic's leader moves, and while no broker answers."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.errors import DeadlineExceeded
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
