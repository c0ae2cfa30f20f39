"""A worker on the Kafka in memory: units that start, fail alone, start again, change and end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from kafka_pubsub import App, InvalidArgument, PubSub
from kafka_pubsub.handlers.units import AppUnit
from kafka_pubsub.services.units import Unit
from kafka_pubsub.worker import life as times
from kafka_pubsub.worker.life import UnitState
from kafka_pubsub.worker.settings import AppSettings, RouterSettings, SequencerSettings, UnitSettings
from kafka_pubsub.worker.units import make_unit
from kafka_pubsub.worker.worker import Worker
from tests.support import until

ROUTER = RouterSettings(tiers=3, partitions=1)


class Made:
    """Makes units on one cluster in memory: apps by the name that their settings have."""

    def __init__(self, pubsub: PubSub) -> None:
        self.pubsub = pubsub
        self.apps = list[str]()
        self.broken = set[str]()

    def __call__(self, name: str, settings: UnitSettings) -> Unit:
        if not isinstance(settings, AppSettings):
            return make_unit(name, settings, lambda: nullcontext(self.pubsub))
        self.apps.append(settings.app)
        if name in self.broken:
            raise InvalidArgument(f"module {settings.app!r} doesn't import")
        app = App(pubsub=self.pubsub)

        @app.subscriber(name, topic="orders")
        def handle(body: bytes) -> None: ...

        return AppUnit(app, name)


@contextmanager
def running(made: Made) -> Iterator[Worker]:
    worker = Worker(made, grace=30)
    try:
        yield worker
    finally:
        assert worker.stop() == []


@pytest.fixture
def made(pubsub: PubSub, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(times, "PAUSE", 0.01)
    return Made(pubsub)


def is_running(worker: Worker, *names: str) -> bool:
    lives = worker.lives()
    return lives.keys() == set(names) and all(each.state is UnitState.RUNNING for each in lives.values())


def test_apps_and_services_run_and_end(made: Made) -> None:
    with running(made) as worker:
        worker.follow({"shop": AppSettings(app="shop"), "router": ROUTER, "sequencer": SequencerSettings()})
        until(lambda: is_running(worker, "shop", "router", "sequencer"))
    assert worker.lives() == {}


def test_a_unit_that_fails_touches_no_other_and_starts_again(made: Made) -> None:
    made.broken.add("shop")
    with running(made) as worker:
        worker.follow({"shop": AppSettings(app="shop"), "bank": AppSettings(app="bank")})
        until(lambda: worker.lives()["shop"].restarts > 2)
        life = worker.lives()["shop"]
        assert life.state in (UnitState.FAILED, UnitState.RESTARTING)
        assert life.error == "module 'shop' doesn't import"
        assert "InvalidArgument" in life.trace
        until(lambda: worker.lives()["bank"].state is UnitState.RUNNING)
        made.broken.clear()
        until(lambda: is_running(worker, "shop", "bank"))
        assert worker.lives()["shop"].trace == ""
        assert worker.lives()["bank"].restarts == 0


def test_a_unit_that_ends_by_itself_starts_again(made: Made) -> None:
    with running(made) as worker:
        worker.follow({"shop": AppSettings(app="shop")})
        until(lambda: is_running(worker, "shop"))
        made.pubsub.delete_subscription("shop")
        until(lambda: worker.lives()["shop"].restarts > 0 and is_running(worker, "shop"))


def test_a_unit_gives_up_when_it_may_and_a_new_reading_of_the_file_starts_it(made: Made) -> None:
    made.broken.add("shop")
    with running(made) as worker:
        wanted: dict[str, UnitSettings] = {"shop": AppSettings(app="shop", max_restarts=2)}
        worker.follow(wanted)
        until(lambda: len(made.apps) == 3 and worker.lives()["shop"].state is UnitState.FAILED)
        assert worker.lives()["shop"].restart_at is None
        made.broken.clear()
        worker.follow(wanted)
        until(lambda: is_running(worker, "shop"))


def test_units_that_are_new_gone_or_changed_start_and_end(made: Made) -> None:
    with running(made) as worker:
        worker.follow({"shop": AppSettings(app="shop"), "bank": AppSettings(app="bank")})
        until(lambda: is_running(worker, "shop", "bank"))
        worker.follow({"shop": AppSettings(app="shop.v2"), "mail": AppSettings(app="mail")})
        until(lambda: made.apps.count("shop.v2") == 1 and is_running(worker, "shop", "mail"))
        worker.follow({"shop": AppSettings(app="shop.v2"), "bank": AppSettings(app="bank")})
        until(lambda: is_running(worker, "shop", "bank"))
        assert made.apps.count("shop.v2") == 1, "what didn't change goes on"


def test_a_module_that_exits_is_a_failure(pubsub: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "PAUSE", 0.01)
    calls = threading.Semaphore(0)

    def make(name: str, settings: UnitSettings) -> Unit:
        calls.release()
        raise SystemExit(3)

    worker = Worker(make, grace=1)
    worker.follow({"shop": AppSettings(app="shop")})
    assert calls.acquire(timeout=30)
    assert calls.acquire(timeout=30), "it is started again"
    assert worker.lives()["shop"].error == "SystemExit: 3"
    assert worker.stop() == []
