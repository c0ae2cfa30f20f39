"""A call that one thread makes on behalf of another, which waits for the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_pubsub.errors import FailedPrecondition

__all__ = ["Question"]

#: Seconds between two checks that the other thread is alive.
_LOOK = 0.5

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """A call and its answer: the other thread calls `run` once; `wait` returns the result or raises the error."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._answers: list[Answer] = []
        self._errors: list[BaseException] = []
        self._done = threading.Event()

    def run(self) -> None:
        """Makes the call."""
        try:
            self._answers.append(self._call())
        except BaseException as error:
            self._errors.append(error)
        self._done.set()

    def wait(self, alive: Callable[[], bool], timeout: float | None) -> Answer:
        """Returns the answer; raises `FailedPrecondition` after `timeout` seconds or without an `alive` thread."""
        while not self._done.wait(_LOOK if timeout is None else timeout):
            if timeout is not None or not alive():
                raise FailedPrecondition("the stream has ended")
        if self._errors:
            raise self._errors[0]
        return self._answers[0]
