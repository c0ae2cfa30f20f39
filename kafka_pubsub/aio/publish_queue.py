"""Publishing without blocking: messages that have to wait are queued in their order.

Theory: a publish blocks when its topic must be looked up first, or when too many messages are on their way. A
coroutine may not block, so such a message is queued here, and a thread publishes the queue one by one. While the
queue isn't empty all messages pass through it, else a later message of a key would overtake an earlier one.

Rules
1. The thread exists only while messages are queued.
2. The queue is bounded: if you don't await any of your futures, `publish` fails before memory runs out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from kafka_pubsub.errors import ResourceExhausted

__all__ = ["PublishLine"]

#: The limit of queued messages, beside those that `PublishFlow` allows: the default of `PublishFlow.max_messages`.
LIMIT = 100_000

Send = Callable[[], Future[str]]


class PublishLine:
    """The queue of one topic, shared by its handles."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        # Waiting messages, oldest first. Empty while `_serving` is false, and sometimes while it is true.
        self._waiting: deque[tuple[Future[str], Send]] = deque()
        self._serving = False

    def publish(self, send: Send, would_block: bool) -> Future[str]:
        """Sends the message now if that can't block and the queue is empty, else queues it."""
        with self._lock:
            if not would_block and not self._serving:
                return send()
            if len(self._waiting) >= self._limit:
                raise ResourceExhausted(
                    f"{self._limit} messages wait to be published: await some of their futures first"
                )
            outcome: Future[str] = Future()
            # A queued message can't be cancelled, like any message that was published.
            outcome.set_running_or_notify_cancel()
            self._waiting.append((outcome, send))
            if not self._serving:
                self._serving = True
                threading.Thread(target=self._serve, name="kafka_pubsub-publish-line", daemon=True).start()
            return outcome

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the queue is empty; returns False if that takes longer than `timeout` seconds."""
        with self._over:
            return self._over.wait_for(lambda: not self._serving, timeout)

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._serving = False
                    self._over.notify_all()
                    return
                outcome, send = self._waiting.popleft()
            try:
                _forward(send(), outcome)
            except Exception as error:
                outcome.set_exception(error)


def _forward(sent: Future[str], outcome: Future[str]) -> None:
    def settle(done: Future[str]) -> None:
        error = done.exception()
        if error is None:
            outcome.set_result(done.result())
        else:
            outcome.set_exception(error)

    sent.add_done_callback(settle)
