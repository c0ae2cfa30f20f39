"""A process that publishes what a service must bring on is warned while no such service runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.publish import service_watch
from kafka_pubsub.publish.service_watch import ServiceWatch
from tests.support import until


class Services:
    """How many run, and how often that was asked."""

    def __init__(self) -> None:
        self.running, self.looks, self.away = 0, 0, False

    def __call__(self) -> bool:
        self.looks += 1
        if self.away:
            raise BrokerUnavailable("no broker answers")
        return self.running > 0


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def watch(services: Services) -> ServiceWatch:
    return watch_of(services)


def watch_of(services: Services, clock: Callable[[], float] = time.monotonic) -> ServiceWatch:
    made = ServiceWatch("delay router", "kafka-pubsub service router", "delayed messages wait", clock)
    made.running = services
    return made


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_a_message_without_a_service_is_followed_by_one_warning_that_names_the_command(
    services: Services,
    watch: ServiceWatch,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_watch, "LOOK", 0.01)
    for number in range(1, 4):
        watch.used()
        until(lambda: services.looks >= number)  # noqa: B023
    until(lambda: watch.missing)
    watch.close()
    assert warnings(caplog) == [
        "no delay router runs: delayed messages wait; `kafka-pubsub service router` starts one"
    ]


def test_the_first_look_comes_before_the_warning_is_due() -> None:
    assert service_watch.LOOK < 5
    assert service_watch.SAY == 60


def test_an_outage_is_warned_of_once_a_minute_and_each_outage_anew(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    watch = watch_of(services, lambda: now)
    watch.look()
    now += 59
    watch.look()
    assert len(warnings(caplog)) == 1
    now += 1
    watch.look()
    assert len(warnings(caplog)) == 2
    services.running = 1
    watch.look()
    assert caplog.records[-1].getMessage() == "a delay router runs again"
    assert not watch.missing
    services.running = 0
    watch.look()
    assert len(warnings(caplog)) == 3


def test_a_running_service_and_a_broker_that_doesnt_answer_are_no_outage(
    services: Services, watch: ServiceWatch, caplog: pytest.LogCaptureFixture
) -> None:
    services.running = 2
    watch.look()
    services.away = True
    watch.look()
    assert not watch.missing
    assert warnings(caplog) == []


def test_a_process_that_ends_soon_is_warned_at_its_close(
    services: Services, watch: ServiceWatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch.used()
    watch.close()
    assert len(warnings(caplog)) == 1


def test_without_a_message_nothing_is_asked_and_no_thread_runs(
    services: Services, watch: ServiceWatch
) -> None:
    before = threading.active_count()
    watch.close()
    assert (services.looks, threading.active_count()) == (0, before)


def test_after_the_close_no_thread_starts(watch: ServiceWatch) -> None:
    watch.close()
    watch.used()
    assert not [each for each in threading.enumerate() if "delay-router-watch" in each.name]
