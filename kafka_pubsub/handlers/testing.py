"""Tests of an app: its handlers run in memory on a clock that skips waits, or on a real broker.

Rules
1. In memory nothing waits for real time: `wait_idle` moves the clock from one due time to the next, until nothing is
   due any more. So backoffs and delays of days take milliseconds.
2. Topics and subscriptions are made, whatever the handlers' `ensure` says.
3. On a broker only what was published and dead-lettered since the test began is shown.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from kafka_pubsub.errors import DeadlineExceeded
from kafka_pubsub.handlers.ensure import TEST_PARTITIONS, ensure_topic
from kafka_pubsub.handlers.topics import AppTopic
from kafka_pubsub.options import PublishOptions
from kafka_pubsub.payloads import encode_body
from kafka_pubsub.records.opening import SchemaPlace
from kafka_pubsub.services.lifecycle import Service

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.dead_letters.model import DeadLetterMessage
    from kafka_pubsub.handlers.life import Life
    from kafka_pubsub.log.memory.clock import VirtualClock
    from kafka_pubsub.model import Message

__all__ = ["AppTest"]

#: Seconds that a publish may take, and real seconds between two looks at a broker.
_PUBLISH, _LOOK = 30.0, 0.1
#: Seconds of the test's clock that a router gets at least for a hop.
_HOP = 1.0
#: Messages of a topic that are looked at.
_MOST = 100_000

#: Starts the app on a client; the function is called with each call's subscription and message.
StartApp = Callable[["PubSub", "Callable[[str, Message], None]"], "Life"]


class AppTest:
    """An app under test; made by `App.test`.

    Example:
        with app.test() as t:
            t.publish("orders", Order(user_id="ada", total=12))
            t.wait_idle()
            assert len(t.calls("billing")) == 1
    """

    def __init__(
        self,
        kafka: str | None,
        start: StartApp,
        stop: Callable[[], None],
        topics: Mapping[str, AppTopic[object]],
        schemas: SchemaPlace | None = None,
    ) -> None:
        self._kafka = kafka
        self._start = start
        self._stop = stop
        self._topics = topics
        self._schemas = schemas
        self._calls: defaultdict[str, list[Message]] = defaultdict(list)
        self._begun = datetime.now(UTC)
        self._life: Life | None = None
        self._pubsub: PubSub | None = None
        #: The clock of a test in memory, which `wait_idle` moves; None: the test runs on a broker.
        self.clock: VirtualClock | None = None

    @property
    def pubsub(self) -> PubSub:
        """The client of the test."""
        assert self._pubsub is not None, "use `with app.test() as t:`"
        return self._pubsub

    def __enter__(self) -> Self:
        self._pubsub = self._open()
        self._begun = datetime.now(UTC) - timedelta(milliseconds=1)
        try:
            for name in self._topics:
                ensure_topic(self._pubsub, name, partitions=TEST_PARTITIONS)
            self._life = self._start(self._pubsub, lambda name, message: self._calls[name].append(message))
        except BaseException:
            self._pubsub.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            self.pubsub.close()

    def _open(self) -> PubSub:
        from kafka_pubsub.app import PubSub
        from kafka_pubsub.log.memory.clock import VirtualClock

        if self._kafka is not None:
            return PubSub(self._kafka, schemas=self._schemas)
        self.clock = VirtualClock(time.time())
        return PubSub.in_memory(clock=self.clock, schemas=self._schemas)

    # -- what a test does ------------------------------------------------------------------------------------

    def publish(self, topic: str, value: object, **options: Unpack[PublishOptions]) -> str:
        """Publishes a value, and returns its message's id once it is stored.

        A value that a topic of the app takes is published as the app does; else it becomes JSON, or goes as it is if it
        is bytes or text. The options are those of `Topic.publish`; the `ordering_key` is by default that of
        `App.topic(key=)`.
        """
        declared = self._topics.get(topic)
        if declared is not None and declared.takes(value):
            return declared.publish(value, **options).result(_PUBLISH)
        return self.pubsub.topic(topic).publish(encode_body(value), **options).result(_PUBLISH)

    def wait_idle(self, timeout: float = 5.0) -> None:
        """Returns when nothing is left to do: all messages are finished, dead letters, or parked.

        In memory waits are skipped. `timeout` (default 5): the real seconds after which it raises `DeadlineExceeded`,
        which says what is going on. It raises the error of a stream that has failed.
        """
        end = time.monotonic() + timeout
        if self.clock is not None:
            self._skip(self.clock, end, timeout)
        else:
            self._wait(end, timeout)
        self._check()

    def calls(self, subscription: str) -> list[Message]:
        """Returns the messages with which the handler was called, in the order of the calls; a redelivery is a call."""
        return list(self._calls[subscription])

    def published(self, topic: str) -> list[Message]:
        """Returns the messages of the topic, in the order of their keys; on a broker those since the test began."""
        found = self.pubsub.topic(topic).tail(_MOST)
        return [message for message in found if self.clock or message.publish_time >= self._begun]

    def dead(self, subscription: str) -> list[DeadLetterMessage]:
        """Returns the subscription's dead letters; on a broker those since the test began."""
        options = self.pubsub.subscription(subscription).options
        if options.dead_letter is None:
            return []
        found = self.pubsub.subscription(subscription).dead_letters()
        return [letter for letter in found if self.clock or letter.died >= self._begun]

    # -- waiting ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._life is not None:
            self._life.check()

    def _skip(self, clock: VirtualClock, end: float, timeout: float) -> None:
        step = 0.0
        while True:
            self._check()
            if time.monotonic() > end:
                raise self._late(timeout)
            try:
                clock.jump(step, timeout=max(0.01, end - time.monotonic()))
            except DeadlineExceeded as error:
                raise self._late(timeout, error.message.replace("advance:", "the clock waits:")) from None
            due = self._next_due(clock)
            if due is None:
                return
            step = due - clock.now()

    def _next_due(self, clock: VirtualClock) -> float | None:
        """Returns when a message is due next; None: none waits. Services also look around, which isn't waited for."""
        due = clock.due_at(leave_out=Service)
        if clock.due_at() == due:
            return due
        times = [0.0 if each.due is None else each.due.timestamp() for each in self.pubsub.delays.waiting()]
        if times:
            # A router brings a message home in hops, each of which may take it a moment more.
            delayed = max(min(times), clock.now() + _HOP)
            due = delayed if due is None else min(due, delayed)
        return due

    def _wait(self, end: float, timeout: float) -> None:
        before = -1
        while True:
            self._check()
            made = sum(map(len, self._calls.values()))
            busy = self._busy()
            if not busy and made == before:
                return
            before = -1 if busy else made
            if time.monotonic() > end:
                raise self._late(timeout, "; ".join(busy))
            time.sleep(_LOOK)

    def _busy(self) -> Sequence[str]:
        """Returns what isn't finished on the broker."""
        assert self._life is not None
        found = []
        for name, stream in self._life.streams.items():
            state = self.pubsub.subscription(name).state()
            left = state.backlog - state.parked
            if not stream.joined or left > 0 or stream.stats.in_flight:
                found.append(f"subscription {name!r}: {left} messages aren't finished")
        return found

    def _late(self, timeout: float, what: str = "") -> DeadlineExceeded:
        last = [
            f"subscription {name!r} was called {len(made)} times, last with {made[-1].message_id} in attempt "
            f"{made[-1].delivery_attempt}"
            for name, made in self._calls.items()
            if made
        ]
        said = "; ".join([*filter(None, [what]), *last]) or "no handler was called"
        return DeadlineExceeded(
            f"wait_idle: after {timeout:g} s there is still something to do: {said}. A message that always fails "
            "needs a dead_letter policy to come to an end"
        )
