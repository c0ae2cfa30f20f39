"""An app as a unit: its state, what is wrong with it, and that others end with it."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub import App, FailedPrecondition, PubSub
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.handlers.units import AppUnit
from kafka_pubsub.services.lifecycle import ServiceState
from kafka_pubsub.services.units import run_units
from tests.support import until


@pytest.fixture
def unit(pubsub: PubSub) -> AppUnit:
    app = App(pubsub=pubsub)

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    return AppUnit(app)


def test_an_app_is_ready_when_its_streams_are_members(unit: AppUnit) -> None:
    assert (unit.health().state, unit.health().ok) == (ServiceState.NEW, False)
    unit.start()
    until(lambda: unit.health().ok)
    assert unit.health().streams == {"billing": ""}
    unit.drain()
    assert unit.health().state is ServiceState.DRAINING
    assert unit.stop(30)
    assert unit.health().state is ServiceState.STOPPED


def test_services_and_apps_run_beside_each_other_until_the_signal(unit: AppUnit, pubsub: PubSub) -> None:
    stop, router = threading.Event(), DelayRouter(pubsub, tiers=3, partitions=1)
    late = list[str]()
    thread = threading.Thread(
        target=lambda: late.extend(run_units([unit, router], stop, grace=30, look=0.02)), daemon=True
    )
    thread.start()
    until(lambda: unit.health().ok and router.health().ok)
    stop.set()
    thread.join(60)
    assert late == []
    assert unit.health().state is router.health().state is ServiceState.STOPPED


def test_a_unit_that_ends_by_itself_ends_the_others(unit: AppUnit, pubsub: PubSub) -> None:
    router = DelayRouter(pubsub, tiers=3, partitions=1)

    def delete() -> None:
        if unit.health().ok:
            pubsub.delete_subscription("billing")

    with pytest.raises(FailedPrecondition, match="the app has ended: subscription 'billing'"):
        run_units([unit, router], threading.Event(), grace=30, watch=delete, look=0.02)
    assert router.health().state is ServiceState.STOPPED


def test_a_unit_that_cannot_start_stops_those_that_did(unit: AppUnit) -> None:
    app = App()
    with pytest.raises(FailedPrecondition, match="no handlers"):
        run_units([unit, AppUnit(app)], threading.Event(), grace=30)
    assert unit.health().state is ServiceState.STOPPED
