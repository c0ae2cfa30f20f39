"""A service's life: started once, begun again after failures, drained, and what it says of itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition
from kafka_pubsub.services import lifecycle
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.lifecycle import Service, ServiceState
from kafka_pubsub.services.metrics import ServiceMetrics
from tests.support import until


class Scripted:
    """An engine whose turns do as they are told: each takes the next of `errors`, and raises it."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.metrics = ServiceMetrics()
        self.made = self.closed = 0
        self.joined = self.outdated = self.busy = False
        self.wakeup_at = None
        self.turned = threading.Event()

    def make(self, metrics: ServiceMetrics, clock: Callable[[], int]) -> Engine:
        self.made, self.metrics, self.outdated = self.made + 1, metrics, False
        return cast("Engine", self)

    def start(self) -> None:
        self.joined, self.metrics.partitions = True, 2

    def turn(self, *, take: bool = True) -> None:
        self.turned.set()
        if self.errors:
            raise self.errors.pop()
        self.metrics.error, self.busy = "", False
        threading.Event().wait(0.001)

    def close(self, *, trim: bool = True) -> None:
        self.closed += 1


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(lifecycle, "_PAUSE", 0.01)
    return Scripted()


@pytest.fixture
def service(engine: Scripted) -> Iterator[Service]:
    made = Service("router", engine.make)
    yield made
    made.stop()


def test_it_is_new_then_runs_then_is_stopped_and_starts_once(service: Service, engine: Scripted) -> None:
    assert service.health().state is ServiceState.NEW
    assert not service.health().ok
    service.start().wait_until_running(10)
    assert service.health() == (ServiceState.RUNNING, 2, "", 0.0)
    assert service.metrics()["partitions"] == 2
    with pytest.raises(FailedPrecondition, match="started already; make a new one"):
        service.start()
    assert service.stop()
    assert service.health().state is ServiceState.STOPPED
    assert (engine.made, engine.closed) == (1, 1)
    with pytest.raises(FailedPrecondition, match="not running"):
        service.wait_until_running(0.1)


@pytest.mark.parametrize("error", [BrokerUnavailable("no broker"), KeyError("bug")])
def test_after_a_failure_another_engine_goes_on(service: Service, engine: Scripted, error: Exception) -> None:
    engine.errors = [error]
    service.start()
    until(lambda: engine.made == 2 and service.health().ok)
    assert engine.closed == 1


def test_after_any_number_of_failures_another_engine_goes_on(
    service: Service, engine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_LONGEST_PAUSE", 0.0)
    # More failures than a float has powers of two: at 10 s each, an outage of three hours.
    engine.errors = [BrokerUnavailable("no broker") for _ in range(1100)]
    service.start()
    until(lambda: service.health().ok or service.health().state is ServiceState.STOPPED)
    assert service.health().ok


def test_an_outdated_engine_is_replaced_without_an_error(service: Service, engine: Scripted) -> None:
    service.start().wait_until_running(10)
    engine.outdated = True
    until(lambda: engine.made == 2 and service.health().ok)


def test_what_is_under_way_is_waited_for_when_it_is_drained(service: Service, engine: Scripted) -> None:
    service.start().wait_until_running(10)
    engine.busy = True
    service.drain()
    assert service.stop(10)
    assert not engine.busy


def test_stopped_before_it_was_started_it_is_stopped() -> None:
    service = Service("router", Scripted().make)
    assert service.stop()
    assert service.health().state is ServiceState.STOPPED
