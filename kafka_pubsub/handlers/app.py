"""`App`: declares handlers, and runs them until it is stopped.

Rules
1. A declaration opens nothing. `start`, `run`, `running` and `test` resolve every handler before they open anything, so
   a wrong one is an error at the start and not with the first message.
2. An app runs once at a time; after a stop it may be started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from types import SimpleNamespace
from typing import Self, TypeVar, Unpack, overload

from kafka_pubsub.app import ConfigValue, PubSub
from kafka_pubsub.config import FlowControl, TopicSchema
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError
from kafka_pubsub.handlers.calls import Calls, Middleware
from kafka_pubsub.handlers.handler import Ensure, Handler
from kafka_pubsub.handlers.life import Life, Plan
from kafka_pubsub.handlers.lifespan import managers_of
from kafka_pubsub.handlers.testing import AppTest
from kafka_pubsub.handlers.topics import AppTopic
from kafka_pubsub.model import Message
from kafka_pubsub.options import Start, SubscriptionSettings
from kafka_pubsub.records.opening import SchemaPlace

__all__ = ["App"]

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

#: Seconds for which a stop lets handlers end, by default: shorter than supervisors wait before they kill a process.
GRACE = 30.0


class App:
    """Handlers of one cluster's messages.

    Example:
        app = App()

        @app.subscriber("billing", topic="orders")
        def charge(order: Order) -> None: ...

        app.run()

    `bootstrap`, `config`, `config_file` and `schemas` are those of `PubSub`, with the same defaults. `pubsub`: a client
    of yours instead, which the app doesn't close; by default it makes one.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        pubsub: PubSub | None = None,
        config: Mapping[str, ConfigValue] | None = None,
        config_file: str | PathLike[str] | None = None,
        schemas: SchemaPlace | None = None,
    ) -> None:
        if pubsub is not None and (bootstrap, config, config_file, schemas) != (None, None, None, None):
            raise InvalidArgument("App: give a pubsub, or a bootstrap and config to make one, not both")
        self._bootstrap, self._config, self._config_file = bootstrap, config, config_file
        self._schemas = schemas
        #: The client that isn't the app's own; and the one in use, None: it is made at its first use.
        self._given = pubsub
        self._pubsub: PubSub | None = None
        # Guards the first use of the client.
        self._lock = threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._topics: dict[str, AppTopic[object]] = {}
        self._middleware: list[Middleware] = []
        self._lifespans: list[Callable[..., object]] = []
        self._life: Life | None = None
        #: Yours: what a lifespan opens and handlers use.
        self.state = SimpleNamespace()

    @property
    def pubsub(self) -> PubSub:
        """The client: yours, or the one that the app makes at its first use and closes when it stops."""
        with self._lock:
            if self._pubsub is None:
                self._pubsub = self._given or PubSub(
                    self._bootstrap,
                    config=self._config,
                    config_file=self._config_file,
                    schemas=self._schemas,
                )
            return self._pubsub

    # -- declarations ----------------------------------------------------------------------------------------

    @overload
    def topic(
        self,
        name: str,
        *,
        key: Callable[[object], str | None] | None = None,
        schema: str | PathLike[str] | TopicSchema | None = None,
    ) -> AppTopic[object]: ...
    @overload
    def topic(
        self,
        name: str,
        model: type[T],
        *,
        key: Callable[[T], str | None] | None = None,
        schema: str | PathLike[str] | TopicSchema | None = None,
    ) -> AppTopic[T]: ...
    def topic(
        self,
        name: str,
        model: type[T] | None = None,
        *,
        key: Callable[[T], str | None] | None = None,
        schema: str | PathLike[str] | TopicSchema | None = None,
    ) -> AppTopic[T]:
        """Returns a topic that publishes values of the type `model`, without any I/O.

        `model`: None, the default, takes any value. `key`: returns a value's ordering key; None, the default, gives
        values no key. `schema`: None, the default, publishes JSON; "avro", "json" or "protobuf" publish by the schema
        that the model brings, a file (`order.avsc`), a subject or a `TopicSchema` by that one (docs/records.md). It is
        declared when the app starts, or by the first value.
        """
        made = AppTopic(name, model, key, lambda: self.pubsub, schema)
        self._topics[name] = made  # type: ignore[assignment]
        return made

    def subscriber(
        self,
        name: str,
        *,
        topic: str,
        start: Start = "latest",
        dead_letter_on: tuple[type[Exception], ...] = (),
        flow: FlowControl | None = None,
        max_workers: int | None = None,
        batch: int | None = None,
        to: str | None = None,
        ensure: Ensure = "create",
        **settings: Unpack[SubscriptionSettings],
    ) -> Callable[[F], F]:
        """Declares the function below it as the handler of a subscription's messages.

        The parameters are filled by their annotations: a pydantic model, dataclass, TypedDict, `dict` or `list` (the
        body as JSON), `str` (as text), `bytes`, `Message`. A return acks, an exception nacks; `Retry`, `Drop` and
        `DeadLetter` say otherwise. A body that doesn't fit is a dead letter at once.

        `name`, `topic`: of the subscription. `settings`: those of `PubSub.create_subscription`, such as
        `message_ordering`, `retry` and `dead_letter`, and `start`, with its defaults. `dead_letter_on` (default none):
        exceptions that make the message a dead letter at once. `flow`, `max_workers`: as in `Subscription.pull`; a
        coroutine function runs up to 1000 at a time by default. `batch` (default None: one message at a time): up to
        so many messages in one call, as a `list[...]`. `to` (default none): the topic on which the returned value is
        published, under the message's key, before the message is acked. `ensure`: "create", the default, makes topics
        and subscription if they are missing; "check" raises what is missing; "never" does neither.
        """
        frame = sys._getframe(1)
        names = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

        def declare(function: F) -> F:
            handler = Handler(
                name,
                function,
                topic,
                start=start,
                dead_letter_on=dead_letter_on,
                flow=flow,
                max_workers=max_workers,
                batch=batch,
                to=to,
                ensure=ensure,
                settings=settings,
                names=names,
            )
            if name in self._handlers:
                raise InvalidArgument(
                    f"{handler.where}: {self._handlers[name].where} has that name already, and a subscription has one "
                    "handler: give one of them another name"
                )
            self._handlers[name] = handler
            return function

        return declare

    def middleware(self, function: F) -> F:
        """Declares a function around each call of a handler: `def timed(call, message): return call()`.

        The one that is declared first is the outermost. With `batch` it gets a list of messages. Around coroutine
        functions it may be one too: `return await call()`.
        """
        self._middleware.append(function)
        return function

    def lifespan(self, function: F) -> F:
        """Declares a context manager, sync or async, that is open while the app runs; or a function that yields once.

        If it has a parameter it gets the app, whose `state` is a place for what it opens.
        """
        self._lifespans.append(function)
        return function

    @property
    def subscriptions(self) -> list[str]:
        """The names of the subscriptions that have a handler."""
        return list(self._handlers)

    # -- running ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises what is wrong with the declarations, without opening anything."""
        self._check_handlers()
        for handler in self._handlers.values():
            Calls(handler, self._middleware)

    def start(self) -> Self:
        """Starts the handlers in the background, and returns; coroutine functions run on a loop of the app's own."""
        if self._life is not None:
            raise _running()
        try:
            life = self._new_life(None)
            life.enter(managers_of(self._lifespans, self))
        except BaseException:
            self._close()
            raise
        self._life = life
        return self

    def stop(self, grace: float | None = GRACE) -> bool:
        """Takes nothing more, lets handlers end for up to `grace` seconds (default 30), and closes what was opened.

        Returns False if handlers still ran after that: their messages are delivered again.
        """
        life, self._life = self._life, None
        try:
            return life is None or life.stop(grace)
        finally:
            self._close()

    def run(self, *, grace: float = GRACE) -> None:
        """Runs until SIGTERM or Ctrl-C, or until a stream fails, whose error it raises.

        `grace`: the seconds (default 30) for which handlers may end then.
        """
        from kafka_pubsub.handlers.units import AppUnit
        from kafka_pubsub.services.signals import stop_flag
        from kafka_pubsub.services.units import run_units

        unit = AppUnit(self)
        with stop_flag() as stop:
            try:
                run_units([unit], stop, grace=grace)
            except PubSubError as error:
                raise unit.failure or error from None

    @contextlib.asynccontextmanager
    async def running(self, _: object = None) -> AsyncIterator[None]:
        """Runs the handlers on this loop inside an `async with` block.

        It serves as lifespan of FastAPI and Starlette, `FastAPI(lifespan=app.running)`, whose argument it ignores.
        """
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            if self._life is not None:
                raise _running()
            stack.push_async_callback(asyncio.to_thread, self._close)
            life = self._new_life(loop)
            for each in managers_of(self._lifespans, self):
                if isinstance(each, AbstractAsyncContextManager):
                    await stack.enter_async_context(each)
                else:
                    stack.enter_context(each)
            stack.push_async_callback(asyncio.to_thread, life.close_streams, GRACE)
            opening = asyncio.ensure_future(asyncio.to_thread(life.open_streams))
            # A cancelled start waits too: streams that open later would be left.
            stack.push_async_callback(asyncio.wait, [opening])
            await asyncio.shield(opening)
            self._life = life
            try:
                yield  # nothing: Starlette would take it for the state of its requests
            finally:
                self._life = None

    @property
    def life(self) -> Life | None:
        """What runs; None: the app isn't started."""
        return self._life

    def test(self, *, kafka: str | None = None, schemas: SchemaPlace | None = None) -> AppTest:
        """Runs the handlers for a test, inside a `with` block: in memory, on a clock that skips backoffs and delays.

        `kafka`: the address of a broker to run them on instead; None, the default, needs none. `schemas`: where the
        schemas lie instead, such as "mock://test", a registry in memory; None, the default, is the app's own.
        """
        before: PubSub | None = None

        def start(ps: PubSub, note: Callable[[str, Message], None]) -> Life:
            nonlocal before
            if self._life is not None:
                raise _running()
            self._pubsub, before = ps, self._pubsub
            try:
                life = self._new_life(None, note)
                life.enter(managers_of(self._lifespans, self))
            except BaseException:
                self._pubsub = before
                raise
            self._life = life
            return life

        def stop() -> None:
            life, self._life = self._life, None
            try:
                if life is not None:
                    life.stop(GRACE)
            finally:
                self._pubsub = before

        return AppTest(kafka, start, stop, self._topics, self._schemas if schemas is None else schemas)

    def _new_life(
        self,
        loop: asyncio.AbstractEventLoop | None,
        note: Callable[[str, Message], None] | None = None,
    ) -> Life:
        self._check_handlers()
        handlers = list(self._handlers.values())
        plan = Plan(self.pubsub, handlers, self._middleware, topics=list(self._topics.values()), note=note)
        return Life(plan, loop)

    def _check_handlers(self) -> None:
        if not self._handlers:
            raise FailedPrecondition(
                "this app has no handlers: declare one with @app.subscriber(NAME, topic=TOPIC), in a module that is "
                "imported before the app starts"
            )

    def _close(self) -> None:
        with self._lock:
            pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None and pubsub is not self._given:
            pubsub.close()

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many bodies didn't fit, by subscription, since the app was started."""
        life = self._life
        return {} if life is None else {each.handler.name: each.rejected for each in life.plan.calls}

    def __repr__(self) -> str:
        return f"<App of {', '.join(map(repr, self._handlers)) or 'no handlers'}>"


def _running() -> FailedPrecondition:
    return FailedPrecondition("this app runs already: stop it first")
