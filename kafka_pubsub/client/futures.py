"""The future of a published message: a real `concurrent.futures.Future` that costs little until somebody waits.

Theory: the standard future builds a condition (a lock and a deque) at birth, which costs more than all else that
`publish` does. Nearly all publish futures are resolved before anybody looks, so this one builds the condition
when it is first asked for, and its text (the message id) when that is read.

Rules
1. The step from pending to finished and the birth of the condition exclude each other (`_birth`): whoever got the
   condition first is notified under it, as in the standard library; whoever comes later finds it finished.
2. Callbacks never run on the thread that serves delivery reports: they go to `CallbackThread`, so a slow one
   delays other callbacks only, and one that publishes or waits can't block the reports that it waits for.
3. A queued message can't be taken back: `cancel()` is False, always.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from queue import SimpleQueue
from typing import Final, NoReturn

from kafka_pubsub.client.publish_flow import Epoch
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import StoredRecord

__all__ = ["CallbackThread", "PublishFuture"]

# The standard library's words: `wait` and `as_completed` compare with them.
_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"

_log = logging.getLogger("kafka_pubsub.publish")

# One lock for all futures: it is held for a few instructions, and a lock each is what we want to save.
_birth = threading.Lock()


def _renew_birth_lock() -> None:
    # Another thread may have held it while the process forked; that thread doesn't exist in the child.
    global _birth
    _birth = threading.Lock()


os.register_at_fork(after_in_child=_renew_birth_lock)


class PublishFuture(Future[str]):
    """Resolves to the message id, once the message is on the in-sync replicas.

    It can't be cancelled: a message that is on its way may be stored at any moment.
    """

    __slots__ = ("_cell", "_done_callbacks", "_own_condition", "_partition", "_waiters", "epoch")

    def __init__(self, epoch: Epoch) -> None:
        # Without the base class's, which would build the condition; what isn't kept here isn't paid for.
        # Where its report is counted.
        self.epoch = epoch
        # None while it runs and nobody has asked, the condition while it runs and somebody has; then the offset in
        # the partition, or what it failed with.
        self._cell: threading.Condition | int | PubSubError | None = None

    def __call__(self, error: object, record: StoredRecord) -> None:
        """The delivery report: the future itself is what `LogWriter.append` calls, to save an object a message."""
        epoch = self.epoch
        if error is None:
            self._partition = record.partition()
            outcome: int | PubSubError = record.offset() or 0
        else:
            outcome = epoch.owner.failed(record.key(), error)
        with _birth:
            condition = self._cell
            if condition is None:
                self._cell = outcome
        if condition is not None:
            self._tell(condition, outcome)
        # Counted last: a flush that has returned promises resolved futures.
        epoch.done_messages += 1
        epoch.done_bytes += len(record)
        if epoch.watched:
            epoch.outstanding.wake(epoch)

    def fail(self, error: PubSubError) -> None:
        """The message was not queued. Before anybody has seen the future."""
        self._cell = error

    def _tell(self, condition: object, outcome: int | PubSubError) -> None:
        """Finishes under the condition, as the standard library does: somebody has asked for it."""
        assert isinstance(condition, threading.Condition), "reported twice"
        with condition:
            self._cell = outcome
            for waiter in self._waiters:
                if isinstance(outcome, int):
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            condition.notify_all()
            called_back = bool(self._done_callbacks)
        if called_back:
            self.epoch.owner.callbacks.run(self._call_back)

    def _call_back(self) -> None:
        for callback in self._done_callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("a done-callback of a publish future raised")

    # What follows are the base class's attributes, read by its methods, by `wait` and by `as_completed`.

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        # Once there, it stays the same for ever: the library locks it through one read and unlocks it through another.
        with _birth:
            if not hasattr(self, "_own_condition"):
                self._waiters = []
                self._done_callbacks: list[Callable[[Future[str]], object]] = []
                self._own_condition = threading.Condition()
                if self._cell is None:
                    self._cell = self._own_condition
            return self._own_condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return _FINISHED if self.done() else _RUNNING

    @property
    def _exception(self) -> PubSubError | None:  # type: ignore[override]
        return self._cell if isinstance(self._cell, PubSubError) else None

    @property
    def _result(self) -> str | None:  # type: ignore[override]
        return self._message_id() if isinstance(self._cell, int) else None

    def _message_id(self) -> str:
        return f"{self.epoch.owner.name}:{self._partition}:{self._cell}"

    def result(self, timeout: float | None = None) -> str:
        """The message id; raises what the publish died of, or `TimeoutError` after `timeout` seconds."""
        if type(self._cell) is int:
            return f"{self.epoch.owner.name}:{self._partition}:{self._cell}"
        return super().result(timeout)

    def done(self) -> bool:
        """True once `result()` doesn't wait."""
        return isinstance(self._cell, int | PubSubError)

    def cancel(self) -> bool:
        """False: a message that was handed over can't be taken back."""
        return False

    def set_result(self, result: str) -> NoReturn:
        """Refused: only the broker's answer resolves it."""
        raise InvalidStateError("a publish future is resolved by the broker's answer only")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        """Refused: only the broker's answer resolves it."""
        raise InvalidStateError("a publish future is resolved by the broker's answer only")


class CallbackThread:
    """One thread that runs the done-callbacks of a pool's futures, in the order in which these finished.

    It starts with the first callback and is a daemon: the interpreter's exit doesn't wait for users' code.
    """

    def __init__(self, name: str = "kafka-pubsub-publish-callbacks") -> None:
        self._name = name
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, task: Callable[[], None]) -> None:
        """Queues a task; it must not raise."""
        self._tasks.put(task)
        if self._thread is None:
            self._start()

    def close(self, timeout: float) -> bool:
        """Lets what is queued run for up to `timeout` seconds; whether it ended."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        self._tasks.put(None)
        thread.join(timeout)
        return not thread.is_alive()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        for task in self._all_tasks():
            task()

    def _all_tasks(self) -> Iterable[Callable[[], None]]:
        return iter(self._tasks.get, None)
