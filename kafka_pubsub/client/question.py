"""A call that another thread makes for the one that waits for its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_pubsub.errors import FailedPrecondition

__all__ = ["Question"]

#: Seconds between two looks at whether the other thread is there.
_LOOK = 0.5

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """`run` is called once by the other thread; `wait` returns what the call returned, or raises what it raised."""

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
        """The answer; `FailedPrecondition` after `timeout` seconds, or when the other thread isn't `alive`."""
        while not self._done.wait(_LOOK if timeout is None else timeout):
            if timeout is not None or not alive():
                raise FailedPrecondition("the stream has ended")
        if self._errors:
            raise self._errors[0]
        return self._answers[0]
