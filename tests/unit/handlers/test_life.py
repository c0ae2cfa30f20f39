"""The life of an app: streams opened together, closed together, and failures that are noticed."""

from __future__ import annotations

import logging
import threading

import pytest

from kafka_pubsub import App, NotFound, PubSub
from kafka_pubsub.handlers.units import AppUnit
from tests.support import until


def test_all_streams_share_the_time_of_a_stop(pubsub: PubSub) -> None:
    app, begun, goes_on = App(pubsub=pubsub), threading.Barrier(4, timeout=60), threading.Event()

    for name in ("a", "b", "c"):

        @app.subscriber(name, topic="orders")
        def handle(body: bytes) -> None:
            begun.wait()
            goes_on.wait(60)

    app.start()
    pubsub.topic("orders").publish(b"x").result(30)
    begun.wait()
    stopping = threading.Thread(target=app.stop, args=(60,))
    stopping.start()
    until(lambda: app.life is None)
    goes_on.set()
    stopping.join(60)
    assert [pubsub.subscription(name).state().backlog for name in "abc"] == [0, 0, 0]


def test_a_stop_waits_no_longer_than_its_grace(pubsub: PubSub, caplog: pytest.LogCaptureFixture) -> None:
    app, begun, goes_on = App(pubsub=pubsub), threading.Event(), threading.Event()

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None:
        begun.set()
        goes_on.wait(60)

    app.start()
    pubsub.topic("orders").publish(b"x").result(30)
    assert begun.wait(60)
    with caplog.at_level(logging.WARNING):
        app.stop(0.1)
    goes_on.set()
    assert "closed while callbacks still run" in caplog.text


def test_a_stream_that_fails_is_the_failure_of_the_life(pubsub: PubSub) -> None:
    app = App(pubsub=pubsub)

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    app.start()
    life = app.life
    assert life is not None
    life.check()
    pubsub.delete_subscription("billing")
    assert life.failed.wait(60)
    with pytest.raises(NotFound):
        life.check()
    app.stop()


def test_a_stream_that_cannot_open_closes_those_that_did(pubsub: PubSub) -> None:
    app = App(pubsub=pubsub)
    pubsub.create_topic("orders")
    pubsub.create_subscription("first", "orders")

    for name in ("first", "second"):

        @app.subscriber(name, topic="orders", ensure="never")
        def handle(body: bytes) -> None: ...

    with pytest.raises(NotFound, match="second"):
        app.start()
    assert app.life is None
    assert pubsub.subscription("first").state().members == 0


def test_a_drained_app_waits_for_the_grace_of_its_stop(
    pubsub: PubSub, caplog: pytest.LogCaptureFixture
) -> None:
    app, begun, goes_on = App(pubsub=pubsub), threading.Event(), threading.Event()

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None:
        begun.set()
        goes_on.wait(60)

    unit = AppUnit(app)
    unit.start()
    pubsub.topic("orders").publish(b"x").result(30)
    assert begun.wait(60)
    unit.drain()
    assert not unit.stop(0.1)
    goes_on.set()
    assert "closed while callbacks still run" in caplog.text


def test_a_stream_that_fails_is_logged(pubsub: PubSub, caplog: pytest.LogCaptureFixture) -> None:
    app = App(pubsub=pubsub)

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    app.start()
    life = app.life
    assert life is not None
    pubsub.delete_subscription("billing")
    assert life.failed.wait(60)
    app.stop()
    assert "subscription 'billing' receives no more" in caplog.text
