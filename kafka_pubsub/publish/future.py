"""The futures of published messages: real `concurrent.futures.Future`s that cost little until a thread waits.

Theory: the standard future builds a condition (a lock and a deque) when it is made, which costs more than the rest of
`publish`. Nearly all publish futures are resolved before a thread reads them. So this one builds the condition at the
first access to it. The library's methods, `wait` and `as_completed` read the private attributes that stand here.

Rules
1. The outcome is stored first, and a condition looked for afterwards. A thread that needs the condition stores it first
   and looks for an outcome afterwards. So at least one of them sees the other and wakes the waiting threads (`_tell`,
   which does it once). This relies on the interpreter's lock, as confluent-kafka does; an outcome takes no lock.
2. Callbacks of a `PublishFuture` never run on the thread that serves delivery reports but on `CallbackThread`. So a
   slow callback delays only other callbacks, and one that publishes or waits can't block the reports that it waits for.
3. A queued message can't be taken back: `cancel()` always returns False.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.threads import ThreadedQueue
from kafka_pubsub.model import StoredRecord
from kafka_pubsub.publish.flow_control import Epoch

if TYPE_CHECKING:
    from concurrent.futures._base import _Waiter

__all__ = ["NOT_SIGNALLED", "CallbackThread", "LateFuture", "PublishFuture", "message_id"]

T = TypeVar("T")

# The standard library's names of the states: `wait` and `as_completed` compare with them.
_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"

_log = logging.getLogger("kafka_pubsub.publish")

# One lock for making the conditions of all futures: held for a few instructions at the first access to a condition.
_birth = threading.Lock()


def _renew_birth_lock() -> None:
    # Another thread may have held it while the process forked; that thread doesn't exist in the child.
    global _birth
    _birth = threading.Lock()


os.register_at_fork(after_in_child=_renew_birth_lock)


#: The offset of a message that was stored, but whose report doesn't say at which offset.
NOT_SIGNALLED = -1


def message_id(topic: str, partition: int | None, offset: int) -> str:
    """Returns the id of a stored message, the same that subscribers see."""
    return f"{topic}:{partition}:{'unknown' if offset == NOT_SIGNALLED else offset}"


class _Waiting:
    """The fields that the standard future builds in its `__init__`; made here at the first access to the condition."""

    __slots__ = ("condition", "done_callbacks", "signalled", "waiters")

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters: list[_Waiter] = []
        self.done_callbacks: list[Callable[..., object]] = []
        # Whether the waiting threads were woken with the outcome.
        self.signalled = False


class LateFuture(Future[T]):
    """A future whose outcome is stored by us. Its class says how a value is read from it, and what a wait is for.

    The base class's `__init__` isn't called: it would build the condition.
    """

    # Each slot costs a kept future 8 bytes and a visit in each round of the garbage collector.
    __slots__ = ("_outcome", "_waiting")

    #: None until it is resolved; then the error, or a value that gives the result.
    _outcome: object
    #: None until the first access to the condition.
    _waiting: _Waiting | None

    def _explain(self, timeout: float | None) -> str:
        """Returns what the message waits for after so many seconds."""
        raise NotImplementedError

    def _run(self, callbacks: Callable[[], None]) -> None:
        """Runs the done-callbacks."""
        callbacks()

    def _tell(self, waiting: _Waiting) -> None:
        """Wakes the waiting threads under the condition, as the standard library does."""
        with waiting.condition:
            if waiting.signalled:
                return
            waiting.signalled = True
            for waiter in waiting.waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            waiting.condition.notify_all()
            called_back = bool(waiting.done_callbacks)
        if called_back:
            self._run(self._call_back)

    def _call_back(self) -> None:
        for callback in self._done_callbacks:
            try:
                callback(self)
            except BaseException:  # the thread goes on with the callbacks of other futures
                _log.exception("a done-callback of a publish future raised")

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return (self._waiting or self._begin_waiting()).condition

    @property
    def _waiters(self) -> list[_Waiter]:  # type: ignore[override]
        return (self._waiting or self._begin_waiting()).waiters

    @property
    def _done_callbacks(self) -> list[Callable[..., object]]:
        return (self._waiting or self._begin_waiting()).done_callbacks

    def _begin_waiting(self) -> _Waiting:
        with _birth:
            waiting = self._waiting
            if waiting is None:
                waiting = self._waiting = _Waiting()
        if self._outcome is not None:
            self._tell(waiting)
        return waiting

    @property
    def _state(self) -> str:  # type: ignore[override]
        # Read under the condition: RUNNING until the waiting threads were woken, or they would be counted twice.
        signalled = self._outcome is not None and (self._waiting is None or self._waiting.signalled)
        return _FINISHED if signalled else _RUNNING

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._outcome if isinstance(self._outcome, BaseException) else None

    def result(self, timeout: float | None = None) -> T:
        """Returns the result; raises the error of the publish, or `TimeoutError` after `timeout` seconds.

        The text of the `TimeoutError` says what the message waits for.
        """
        try:
            return super().result(timeout)
        except TimeoutError:
            raise TimeoutError(self._explain(timeout)) from None

    def done(self) -> bool:
        """Returns True once `result()` doesn't wait."""
        return self._outcome is not None

    def cancel(self) -> bool:
        """Returns False: a message that was handed over can't be taken back."""
        return False

    def set_result(self, result: T) -> NoReturn:
        """Refused: only the answer to the message resolves it."""
        raise InvalidStateError("a publish future is resolved by the answer to its message only")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        """Refused: only the answer to the message resolves it."""
        raise InvalidStateError("a publish future is resolved by the answer to its message only")


class PublishFuture(LateFuture[str]):
    """Resolves to the message id, once the message is on the in-sync replicas.

    It can't be cancelled: a message that is on its way may be stored at any moment.
    """

    __slots__ = ("_partition", "epoch")

    #: None until the report; then the offset in the partition, or the error.
    _outcome: int | PubSubError | None

    def __init__(self, epoch: Epoch) -> None:
        # `epoch` counts the report.
        self.epoch = epoch
        self._outcome = self._waiting = None

    def __call__(self, error: object, record: StoredRecord) -> None:
        """Takes the delivery report: `LogWriter.append` calls the future itself, to save an object for each message."""
        epoch = self.epoch
        if error is None:
            self._partition = record.partition()
            # None: the broker had stored the batch already when it was sent again, and doesn't say at which offset.
            self._outcome = NOT_SIGNALLED if (offset := record.offset()) is None else offset
        else:
            self._outcome = epoch.owner.failed(record.key(), error)
        if self._waiting is not None:
            self._tell(self._waiting)
        # Counted last: a flush that has returned promises resolved futures.
        epoch.done_messages = done = epoch.done_messages + 1
        epoch.done_bytes += len(record)
        if done >= epoch.look_at:
            epoch.outstanding.wake(epoch, record)

    def fail(self, error: PubSubError) -> None:
        """Sets the error of a message that was not queued; called before the future is handed out."""
        self._outcome = error

    def settle(self, partition: int | None, outcome: int | PubSubError) -> None:
        """Sets the outcome of a future that isn't itself the report; further calls bring the same outcome."""
        self._partition, self._outcome = partition, outcome
        if self._waiting is not None:
            self._tell(self._waiting)

    def _run(self, callbacks: Callable[[], None]) -> None:
        owner = self.epoch.owner
        owner.callbacks.run(callbacks)

    def _explain(self, timeout: float | None) -> str:
        return self.epoch.owner.waits(timeout)

    @property
    def _result(self) -> str | None:  # type: ignore[override]
        if isinstance(self._outcome, int):
            return message_id(self.epoch.owner.name, self._partition, self._outcome)
        return None

    def result(self, timeout: float | None = None) -> str:
        """Returns the message id; raises the error of the publish, or `TimeoutError` after `timeout` seconds.

        While no broker answers, the text of the `TimeoutError` says at which address, and why.
        """
        outcome = self._outcome
        if type(outcome) is int and outcome >= 0:
            return f"{self.epoch.owner.name}:{self._partition}:{outcome}"  # as `message_id` does, at half its cost
        return super().result(timeout)


#: Seconds that a close waits for done-callbacks: they are users' code, which may never end.
_CALLBACKS_S: Final = 5.0


class CallbackThread:
    """One thread that runs the done-callbacks of a pool's futures, in the order in which these finished.

    It starts with the first callback and is a daemon: the interpreter's exit doesn't wait for users' code.
    """

    def __init__(self, name: str = "kafka-pubsub-publish-callbacks") -> None:
        self._tasks: ThreadedQueue[Callable[[], None]] = ThreadedQueue(self._work, name)

    def run(self, task: Callable[[], None]) -> None:
        """Queues a task, which must not raise."""
        self._tasks.put(task)

    def close(self, timeout: float) -> bool:
        """Lets the queued tasks run for up to `timeout` seconds; returns whether they ended."""
        # If no other thread works, none can be waited for or ended: callbacks of a late report still run.
        return not self._tasks.worked_elsewhere() or self._tasks.close(timeout)

    def end(self) -> None:
        """Lets the queued tasks run for a while; the log says so if they take longer."""
        if not self.close(_CALLBACKS_S):
            _log.warning("done-callbacks of publish futures still run after %s s; going on", _CALLBACKS_S)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
