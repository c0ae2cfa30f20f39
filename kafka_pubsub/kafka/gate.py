"""A gate in front of a librdkafka handle.

A handle that is freed while another thread is inside a call crashes the process, so whoever frees it closes the
gate first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_pubsub.errors import FailedPrecondition

__all__ = ["Gate"]


class Gate:
    """Lets calls in until it is closed; closing waits for those that are in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.closed = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call; `FailedPrecondition` once closed."""
        with self._changed:
            self.check()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def check(self) -> None:
        """`FailedPrecondition` once closed."""
        if self.closed:
            raise FailedPrecondition("the stream's reader is closed; pull again for a new one")

    def close(self) -> None:
        """No call gets in any more, and none is in any more."""
        with self._changed:
            self.closed = True
            self._changed.wait_for(lambda: self._inside == 0)
