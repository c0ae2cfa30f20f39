"""The future of a message to causal topics: a `concurrent.futures.Future` that costs little until a thread waits.

Theory. The standard future builds a condition when it is made, and takes it when it is resolved. Most futures of a
batch are resolved before a thread looks at them. So this one makes its condition when it is first asked for.

Rules
1. A future without a condition is resolved under the publisher's lock, under which conditions are made. So a thread
   that has the condition of a future that isn't resolved is woken as by the standard library.
2. A queued message can't be taken back: the future is running from the start, so `cancel()` returns False.
3. A `TimeoutError` says what the message waits for, and what to do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafka_pubsub.multicast.values import MessageTimestamp

if TYPE_CHECKING:
    from concurrent.futures._base import _Waiter

__all__ = ["IdFuture", "Sent", "SentFuture", "Waits", "resolve"]

# The standard library's names of the states: `wait` and `as_completed` compare with them.
_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"


class Sent(NamedTuple):
    """What the future of `publish_multi` gives: the message's id, and its place in the order of all messages.

    Of two messages the one with the lower `timestamp` comes first at every topic that gets both.
    """

    message_id: str
    timestamp: MessageTimestamp


class Waits(Protocol):
    """Says why the message of a future isn't delivered after so many seconds, and what to do."""

    def __call__(self, future: Future[Sent], seconds: float | None) -> str: ...


class SentFuture(Future[Sent]):
    """Resolves when a topic has got the message. `lock`: that of all futures of a publisher."""

    def __init__(self, lock: threading.Lock, waits: Waits) -> None:
        # The base class's `__init__` isn't called: it would build the condition.
        self._lock, self.waits = lock, waits
        self._made: threading.Condition | None = None
        self._state = _RUNNING
        self._result: Sent | None = None
        self._exception: BaseException | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with self._lock:
            if self._made is None:
                self._waiters: list[_Waiter] = []
                self._done_callbacks: list[Callable[[Future[Sent]], object]] = []
                self._made = threading.Condition()
            return self._made

    def done(self) -> bool:
        """Returns True once `result()` doesn't wait."""
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> Sent:
        """Returns the message's id and timestamp; raises the error of the publish, or `TimeoutError`."""
        if self._state == _FINISHED and self._result is not None:
            return self._result
        try:
            return super().result(timeout)
        except TimeoutError:
            raise TimeoutError(self.waits(self, timeout)) from None


class IdFuture(Future[str]):
    """Resolves to the id of a message that a `SentFuture` is for."""

    def __init__(self, sent: SentFuture) -> None:
        super().__init__()
        self._sent = sent
        self.set_running_or_notify_cancel()
        sent.add_done_callback(self._settle)

    def result(self, timeout: float | None = None) -> str:
        """Returns the message's id; raises the error of the publish, or `TimeoutError`."""
        try:
            return super().result(timeout)
        except TimeoutError:
            raise TimeoutError(self._sent.waits(self._sent, timeout)) from None

    def _settle(self, sent: Future[Sent]) -> None:
        error = sent.exception()
        if error is None:
            self.set_result(sent.result().message_id)
        else:
            self.set_exception(error)


def resolve(futures: Sequence[SentFuture], results: Sequence[Sent], lock: threading.Lock) -> None:
    """Gives futures of this lock their results, except for those that have an outcome already."""
    looked_at = []
    with lock:
        for future, result in zip(futures, results, strict=True):
            if future._made is not None:
                looked_at.append((future, result))
            elif future._state == _RUNNING:
                future._result, future._state = result, _FINISHED
    for future, result in looked_at:
        with contextlib.suppress(InvalidStateError):
            future.set_result(result)
