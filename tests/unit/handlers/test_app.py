"""An app: declared, started, run, stopped; its resources and its topics."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from pydantic import BaseModel

from kafka_pubsub import App, FailedPrecondition, InvalidArgument, NotFound, PubSub
from tests.support import until


class Order(BaseModel):
    user_id: str
    total: int


def test_an_app_without_handlers_says_how_to_declare_one() -> None:
    for begin in (App().start, App().run, App().check):
        with pytest.raises(
            FailedPrecondition, match=r"this app has no handlers: declare one with @app\.subscriber"
        ):
            begin()


def test_a_client_and_an_address_are_not_given_together(pubsub: PubSub) -> None:
    with pytest.raises(InvalidArgument, match="give a pubsub, or a bootstrap and config"):
        App("localhost:9092", pubsub=pubsub)


def test_a_started_app_handles_until_it_is_stopped_and_can_start_again(pubsub: PubSub) -> None:
    app, seen = App(pubsub=pubsub), list[int]()
    orders = app.topic("orders", Order, key=lambda order: order.user_id)

    @app.subscriber("billing", topic="orders")
    def handle(order: Order) -> None:
        seen.append(order.total)

    for round in (1, 2):
        assert app.start() is app
        with pytest.raises(FailedPrecondition, match="this app runs already"):
            app.start()
        orders.publish(Order(user_id="ada", total=round)).result(30)
        until(lambda round=round: round in seen)  # type: ignore[misc]
        app.stop()
        app.stop()
    assert seen == [1, 2]
    assert repr(app) == "<App of 'billing'>"


def test_resources_are_open_while_it_runs_and_closed_in_reverse(pubsub: PubSub) -> None:
    app, steps = App(pubsub=pubsub), list[str]()

    @app.lifespan
    def database(app: App) -> Iterator[None]:
        app.state.database = "open"
        steps.append("database opens")
        yield
        steps.append("database closes")

    @app.lifespan
    @contextlib.contextmanager
    def cache() -> Iterator[None]:
        steps.append("cache opens")
        yield
        steps.append("cache closes")

    @app.lifespan
    async def session() -> AsyncIterator[None]:
        task = asyncio.current_task()
        steps.append("session opens")
        yield
        assert asyncio.current_task() is task
        steps.append("session closes")

    @app.subscriber("billing", topic="orders")
    async def handle(body: bytes) -> None:
        steps.append(app.state.database)

    app.start()
    pubsub.topic("orders").publish(b"x").result(30)
    until(lambda: "open" in steps)
    app.stop()
    opened, closed = steps[:3], steps[-3:]
    assert opened == ["database opens", "cache opens", "session opens"]
    assert closed == ["session closes", "cache closes", "database closes"]


def test_a_resource_that_cannot_be_opened_ends_the_start_and_closes_the_others(pubsub: PubSub) -> None:
    app, steps = App(pubsub=pubsub), list[str]()

    @app.lifespan
    def first() -> Iterator[None]:
        try:
            yield
        finally:
            steps.append("closed")

    @app.lifespan
    def second() -> Iterator[None]:
        if steps == []:
            raise RuntimeError("no database")
        yield

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    with pytest.raises(RuntimeError, match="no database"):
        app.start()
    assert steps == ["closed"]
    assert pubsub.list_topics() == []


def test_a_lifespan_that_is_no_context_manager_is_refused(pubsub: PubSub) -> None:
    app = App(pubsub=pubsub)

    @app.lifespan
    def wrong() -> int:
        return 3

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    with pytest.raises(InvalidArgument, match=r"lifespan wrong\(\) in .* must be a context manager"):
        app.start()


def test_running_serves_as_a_lifespan_of_another_program(pubsub: PubSub) -> None:
    app, loops = App(pubsub=pubsub), list[object]()

    @app.subscriber("billing", topic="orders")
    async def handle(body: bytes) -> None:
        loops.append(asyncio.get_running_loop())

    async def play() -> None:
        async with app.running(object()) as running:
            assert running is None
            await asyncio.wrap_future(pubsub.topic("orders").publish(b"x"))
            while not loops:
                await asyncio.sleep(0.01)
            assert loops == [asyncio.get_running_loop()]
        assert app.life is None

    asyncio.run(asyncio.wait_for(play(), 60))


def test_run_raises_the_error_of_a_stream_that_fails(pubsub: PubSub) -> None:
    app = App(pubsub=pubsub)

    @app.subscriber("billing", topic="orders")
    def handle(body: bytes) -> None: ...

    def delete_later() -> None:
        until(lambda: app.life is not None and all(each.joined for each in app.life.streams.values()))
        pubsub.delete_subscription("billing")

    thread = threading.Thread(target=delete_later)
    thread.start()
    with pytest.raises(NotFound, match="subscription 'billing' was deleted"):
        app.run()
    thread.join()


def test_a_typed_topic_refuses_values_of_other_types(pubsub: PubSub) -> None:
    pubsub.create_topic("orders")
    app = App(pubsub=pubsub)
    orders = app.topic("orders", Order, key=lambda order: order.user_id)
    with pytest.raises(InvalidArgument, match=r"topic 'orders' takes Order, not dict: publish Order\(...\)"):
        orders.publish({"user_id": "ada"})  # type: ignore[arg-type]
    orders.publish(Order(user_id="ada", total=1)).result(10)
    orders.publish(Order(user_id="ada", total=2), ordering_key="bob").result(10)
    assert {message.ordering_key for message in pubsub.topic("orders").tail(5)} == {"ada", "bob"}
    app.topic("orders").publish({"any": "thing"}).result(10)
