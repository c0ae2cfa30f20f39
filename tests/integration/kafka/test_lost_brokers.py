"""A producer of librdkafka's to which metadata named no broker, and which doesn't find any again (decision 073)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_pubsub.config import Batching
from kafka_pubsub.log.kafka import writer
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.kafka.writer import KafkaLogWriter
from tests.integration.kafka.nameless_brokers import NamelessBrokers
from tests.support import until

#: Seconds in which a producer has surely heard of what is wrong with the brokers.
A_MOMENT = 0.3
#: About every second try loses the brokers.
TRIES = 20

STORED = "stored"

Wait = Callable[[KafkaLogWriter, float], int]


class Written:
    """Messages to a single partition of each broker, and what was reported of them."""

    def __init__(self, log: KafkaLogWriter, wait: Wait) -> None:
        self._outcomes: list[str] = []
        self._log, self._wait = log, wait
        for partition in range(3):
            log.append("t", b"x", None, None, self._report, partition)

    def _report(self, error: object, _: object) -> None:
        self._outcomes.append(STORED if error is None else self._log.explain(error).message)

    def serve(self, seconds: float) -> None:
        """Serves reports for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._wait(self._log, 0.01)

    def settle(self) -> set[str]:
        """Returns what was reported once all are reported."""
        until(lambda: self._wait(self._log, 0.1) < 0 or len(self._outcomes) == 3, "a report of each message")
        return set(self._outcomes)


def _lose(brokers: NamelessBrokers, log: KafkaLogWriter, wait: Wait) -> set[str]:
    """Returns what was reported of messages to brokers that were away, came back, and then were named by none."""
    # The last one goes right after it has answered. librdkafka begins to go back to the bootstrap addresses, takes the
    # answer for a reason not to, and never begins that again.
    brokers.hang_up = brokers.refuse = True
    brokers.drop(0)
    brokers.drop(1)
    away = Written(log, wait)
    away.serve(A_MOMENT)
    brokers.hang_up = brokers.refuse = False
    assert away.settle() == {STORED}
    brokers.nameless = True
    nameless = Written(log, wait)
    nameless.serve(A_MOMENT)
    brokers.nameless = False
    return nameless.settle()


@pytest.mark.parametrize("wait", [KafkaLogWriter.poll, KafkaLogWriter.flush])
def test_its_messages_are_reported_and_others_are_sent(wait: Wait, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOST_S", 2.0)
    with NamelessBrokers() as brokers:
        backend = KafkaBackend(brokers.address)
        log = backend.writer(Batching(), 1_000_000)
        assert isinstance(log, KafkaLogWriter)
        assert Written(log, wait).settle() == {STORED}
        tries = (_lose(brokers, log, wait) for _ in range(TRIES))
        outcomes = next((found for found in tries if found != {STORED}), None)
        if outcomes is None:
            pytest.skip("this version of librdkafka has found its brokers each time")
        assert all("the message may be in the topic" in each for each in outcomes)
        until(lambda: wait(log, 0.1) >= 0 and log._session.stopped_because is None, "a new producer")
        assert Written(log, wait).settle() == {STORED}
        backend.close()
