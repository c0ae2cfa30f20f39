"""Publishes the events from several threads, consumes them with several workers, and records both in the ledger.

Rules
1. One thread publishes all events of a user, so that a key has an order of publishing.
2. The ledger checks the delivered message: its key and attempt, and the number from its body.
3. The topic and the subscription are made for the run and deleted after it, whatever happened.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_pubsub.cli.demo.ledger import Ledger
from kafka_pubsub.cli.demo.story import Event, story, toss
from kafka_pubsub.errors import DeadlineExceeded, PubSubError

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.model import Message
    from kafka_pubsub.subscriber import Stream
    from kafka_pubsub.subscription import Subscription
    from kafka_pubsub.topic import Topic

__all__ = ["Plan", "Run"]

# Long enough to watch, short enough to wait for.
PUBLISHING_S = 8.0
# A short run shouldn't be drawn out.
LEAST_RATE = 1_000
# What a small machine publishes one by one without becoming the bottleneck of its own demo.
TOP_RATE = 5_000
PUBLISHERS = 4
# The simulated work of a callback, in seconds, from and to: that of a row written to a database.
WORK_S = (0.0005, 0.006)
# Redeliveries long enough to see as blocked keys, and short enough not to wait for at the end.
BACKOFF_S = (0.15, 0.6)
# Without any progress for so long something is wrong.
STUCK_S = 30.0
# Anything that is delivered after its ack shows up by then.
SETTLE_S = 0.3


@dataclass(frozen=True)
class Plan:
    """The size and the pace of the demo."""

    messages: int = 20_000
    keys: int = 200
    workers: int = 16
    nack_rate: float = 0.02
    seed: int = 1

    @property
    def publishers(self) -> int:
        """How many threads publish."""
        return min(PUBLISHERS, self.keys)

    @property
    def rate(self) -> float:
        """Events per second, all publishers together."""
        return min(TOP_RATE, max(LEAST_RATE, self.messages / PUBLISHING_S))


@dataclass
class Run:
    """One run of the demo: enter it, `start` it, ask whether it has `finished`, let it `settle`."""

    pubsub: PubSub
    plan: Plan
    #: The whole cluster is thrown away afterwards, so nothing needs to be deleted one by one.
    disposable: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    #: On the monotonic clock; the first event is published then.
    started: float = 0.0
    #: From the first event to the last ack; 0.0 until that.
    seconds: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None
    _publishers: list[threading.Thread] = field(default_factory=list)
    _resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    #: The counts when they last moved, and when that was.
    _seen: tuple[int, int] = (-1, -1)
    _moved: float = 0.0
    _topic: Topic = field(init=False)
    _subscription: Subscription = field(init=False)
    #: None before `start`.
    _stream: Stream | None = None

    def __enter__(self) -> Run:
        from kafka_pubsub.config import RetryPolicy

        name = f"demo-{random.randbytes(4).hex()}"
        low, high = BACKOFF_S
        try:
            self._topic = self.pubsub.create_topic(name, partitions=8, message_ordering=True)
            self._resources.callback(self.pubsub.delete_topic, name)
            self._subscription = self.pubsub.create_subscription(
                name, topic=name, message_ordering=True, retry=RetryPolicy(min_backoff=low, max_backoff=high)
            )
            self._resources.callback(self.pubsub.delete_subscription, name)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def start(self) -> None:
        """Begins to consume and to publish."""
        from kafka_pubsub.config import FlowControl

        events = list(story(self.plan.messages, self.plan.keys, self.plan.seed))
        flow = FlowControl(max_messages=max(1000, self.plan.workers))
        self._stream = self._subscription.pull(self._handle, flow=flow, max_workers=self.plan.workers)
        self.started = time.monotonic()
        for number in range(self.plan.publishers):
            thread = threading.Thread(
                target=self._publish, args=(events, number), name=f"demo-publisher-{number}", daemon=True
            )
            self._publishers.append(thread)
            thread.start()

    def finished(self) -> bool:
        """Returns whether every event was acked; raises the error that makes that impossible."""
        picture = self.ledger.picture()
        if self._failure is not None:
            raise self._failure
        if self._stream is not None and self._stream.done():
            self._stream.result(timeout=0)
        now = time.monotonic()
        if picture.finished >= self.plan.messages:
            self.seconds = now - self.started
            return True
        if (picture.published, picture.finished) != self._seen:
            self._seen, self._moved = (picture.published, picture.finished), now
        elif now - self._moved > STUCK_S:
            done = f"{picture.finished:,} of {self.plan.messages:,} events were handled"
            raise DeadlineExceeded(f"nothing was delivered for {STUCK_S:.0f} s; {done}")
        return False

    def settle(self) -> None:
        """Waits for deliveries that must not come, and closes the stream."""
        time.sleep(SETTLE_S)
        if self._stream is not None:
            self._stream.close(timeout=10)

    def _publish(self, events: list[Event], number: int) -> None:
        # Published and not yet answered, oldest first.
        pending: deque[tuple[str, Future[str]]] = deque()
        try:
            for index, event in enumerate(events):
                if event.user % self.plan.publishers != number:
                    continue
                self._count(pending, wait=False)
                ahead = self.started + index / self.plan.rate - time.monotonic()
                if self._stop.wait(ahead) if ahead > 0 else self._stop.is_set():
                    return
                attributes = {"event": event.kind}
                future = self._topic.publish(event.body(), ordering_key=event.key, attributes=attributes)
                pending.append((event.key, future))
            self._count(pending, wait=True)
        except (PubSubError, TimeoutError) as error:
            self._failure = error

    def _count(self, pending: deque[tuple[str, Future[str]]], *, wait: bool) -> None:
        """Records in the ledger the events that the broker has stored; raises the error of a failed publish."""
        while pending and (wait or pending[0][1].done()):
            key, future = pending.popleft()
            future.result(timeout=STUCK_S)
            self.ledger.published(key)

    def _handle(self, message: Message) -> None:
        key, attempt = message.ordering_key or "", message.delivery_attempt
        sequence = json.loads(message.data)["sequence"]
        if not self.ledger.begin(key, sequence, attempt):
            message.ack()
            return
        shortest, longest = WORK_S
        time.sleep(shortest + (longest - shortest) * toss(self.plan.seed, key, sequence, 0))
        if toss(self.plan.seed, key, sequence, attempt) < self.plan.nack_rate:
            self.ledger.nack(key)
            message.nack()
        else:
            self.ledger.ack(key, sequence)
            message.ack()

    def _close(self) -> None:
        self._stop.set()
        for thread in self._publishers:
            thread.join(timeout=5)
        if self._stream is not None and not self._stream.done():
            self._stream.cancel()
            with contextlib.suppress(PubSubError, TimeoutError):
                self._stream.result(timeout=10)
        if self.disposable:
            return
        # A failed deletion (the broker is gone) must not hide the error of the run.
        with contextlib.suppress(PubSubError):
            self._resources.close()
