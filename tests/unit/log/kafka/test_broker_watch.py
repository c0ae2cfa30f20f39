"""A producer of librdkafka's that never finds its broker again is replaced, and only such a producer."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import PublishError
from kafka_pubsub.log.kafka import writer
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.writer import KafkaLogWriter
from tests.support import until

UNREACHED = KafkaException(KafkaError(KafkaError._TRANSPORT))
CLOSED = RuntimeError("Handle has been closed")


class Scripted:
    """A producer that answers nothing; `finds`: whether the producer knows a broker."""

    def __init__(self, on_error: Any, finds: bool) -> None:
        self.on_error, self.finds = on_error, finds
        self.asked = 0
        #: Its error if it finds no broker, and an event for which it waits before that.
        self.failure: Exception = UNREACHED
        self.held: threading.Event | None = None
        #: Whether each flush stores a single message.
        self.stores = False
        self._queue: list[Any] = []
        self._purged: list[Any] = []

    def __len__(self) -> int:
        return len(self._queue) + len(self._purged)

    def produce(self, *arguments: Any) -> None:
        self._queue.append(arguments[4])

    def poll(self, timeout: float) -> int:
        purged, self._purged = self._purged, []
        for report in purged:
            report(KafkaError(KafkaError._PURGE_INFLIGHT), None)
        return len(purged)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        if self.stores and self._queue:
            self._queue.pop(0)(None, None)
        return len(self)

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        self._purged, self._queue = self._purged + self._queue, []

    def list_topics(self, timeout: float) -> None:
        self.asked += 1
        if self.held is not None:
            self.held.wait()
        if not self.finds:
            raise self.failure


class Producers:
    """Makes scripted producers and new clients that ask; the first producer has lost its brokers.

    The others, and the clients, find them unless `down`.
    """

    def __init__(self) -> None:
        self.down = False
        self.first_finds = False
        self.made: list[Scripted] = []
        self.asking: list[Scripted] = []
        self.closed: list[Scripted] = []

    def producer(self, defaults: object, rules: object, on_error: object = None) -> Scripted:
        self.made.append(Scripted(on_error, not self.down and (bool(self.made) or self.first_finds)))
        return self.made[-1]

    def admin(self) -> Scripted:
        self.asking.append(Scripted(None, not self.down))
        return self.asking[-1]

    def close_admin(self, client: Scripted) -> None:
        self.closed.append(client)

    def introduce(self, producer: Scripted, seconds: float) -> bool:
        return True

    def close_producer(self, producer: Scripted) -> None:
        self.closed.append(producer)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOST_S", 0.05)


@pytest.fixture
def producers() -> Producers:
    return Producers()


def looks() -> bool:
    """Whether a look at the brokers goes on."""
    return any(each.name == "kafka_pubsub-find-brokers" for each in threading.enumerate())


def write_one(producers: Producers) -> tuple[KafkaLogWriter, list[Any]]:
    log = KafkaLogWriter(cast("ClientFactory", producers), Batching(), 1_000_000)
    errors: list[Any] = []
    log.append("t", b"x", None, None, lambda error, record: errors.append(error))
    return log, errors


def test_a_producer_that_lost_its_brokers_is_replaced_and_its_messages_are_reported(
    producers: Producers,
) -> None:
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    until(lambda: log.poll(0) or errors, "a report")
    (error,) = errors
    reason = log.explain(error)
    assert isinstance(reason, PublishError)
    assert "may be in the topic" in str(reason)
    until(lambda: log.poll(0) == 0 and len(producers.made) == 2, "a new producer")
    log.append("t", b"y", None, None, lambda error, record: None)
    assert len(producers.made[1]) == 1
    assert producers.closed == producers.asking


def test_it_is_found_out_during_a_flush_that_waits_for_it(producers: Producers) -> None:
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    until(lambda: log.flush(0) == 0, "the end of a flush")
    assert "may be in the topic" in str(log.explain(errors[0]))


def test_a_producer_that_reports_during_a_flush_is_never_asked(producers: Producers) -> None:
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    producers.made[0].stores = True
    for _ in range(1000):
        log.append("t", b"x", None, None, lambda error, record: errors.append(error))
    end = time.monotonic() + 0.2
    until(lambda: log.flush(0) == 0 or time.monotonic() > end)
    assert (len(producers.made), producers.asking) == (1, [])
    assert set(errors) == {None}


@pytest.mark.parametrize("failure", [UNREACHED, CLOSED])
def test_a_look_that_a_close_overtakes_tells_nothing(
    failure: Exception, producers: Producers, caplog: pytest.LogCaptureFixture
) -> None:
    log, errors = write_one(producers)
    producers.made[0].failure, producers.made[0].held = failure, threading.Event()
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    until(lambda: log.poll(0) or producers.made[0].asked, "a look")
    with caplog.at_level(logging.WARNING):
        log.close()
        producers.made[0].held.set()
        until(lambda: not looks())
    assert len(errors) == 1
    assert caplog.messages == []


def test_a_producer_waits_for_brokers_that_are_away(producers: Producers) -> None:
    producers.down = True
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    until(lambda: log.poll(0) or len(producers.closed) >= 2, "two looks")
    assert (errors, len(producers.made)) == ([], 1)


def test_a_producer_that_finds_its_brokers_is_kept(producers: Producers) -> None:
    producers.first_finds = True
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._TRANSPORT))
    until(lambda: log.poll(0) or producers.made[0].asked >= 2, "two looks")
    assert errors == []


def test_a_producer_with_nothing_to_send_is_never_asked(producers: Producers) -> None:
    log, errors = write_one(producers)
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    producers.made[0].purge(in_queue=True, in_flight=True, blocking=False)
    until(lambda: log.poll(0) or errors)
    end = time.monotonic() + 0.2
    until(lambda: log.poll(0) or time.monotonic() > end)
    assert (len(producers.made), producers.asking) == (1, [])


def test_a_producer_has_time_after_its_first_complaint(
    producers: Producers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOST_S", 600.0)
    log, _ = write_one(producers)
    log._answered_at -= 3600.0
    until(lambda: not looks())  # lines of other tests
    producers.made[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    log.poll(0)
    assert (looks(), len(producers.made), producers.asking) == (False, 1, [])


def test_a_producer_that_never_complained_is_never_asked(producers: Producers) -> None:
    log, errors = write_one(producers)
    end = time.monotonic() + 0.2
    until(lambda: log.poll(0) or time.monotonic() > end)
    assert (errors, len(producers.made), producers.asking) == ([], 1, [])
