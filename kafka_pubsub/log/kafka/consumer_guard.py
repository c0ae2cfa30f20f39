"""A guard in front of a consumer that several threads call.

It is needed because of two limits of confluent-kafka (2.16):

- Freeing a consumer while another thread is inside a call crashes the process. So the thread that frees it closes
  the guard first, which waits for the calls inside.
- Since 2.16 the client lets one thread at a time into a consumer: a commit waits until a `consume` of another thread
  returns, and for ever if that one is inside a rebalance callback that waits for the commit. librdkafka itself is
  thread-safe here. The client's asyncio variant passes its own barrier by a context variable that names the caller;
  all calls through one guard set the same name. Where that variable doesn't exist there is no barrier.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from confluent_kafka import cimpl

from kafka_pubsub.errors import FailedPrecondition

__all__ = ["ConsumerGuard"]

# Internal to confluent-kafka: tests/integration/kafka/test_threads.py notices when it changes.
_CALLER: ContextVar[int] = getattr(cimpl, "_reentry_identity_var", ContextVar("no_barrier", default=0))


class ConsumerGuard:
    """Lets calls in until it is closed; closing waits for the calls inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.closed = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Lets a call in; raises `FailedPrecondition` once closed."""
        with self._changed:
            self.check()
            self._inside += 1
        try:
            with self.together():
                yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Lets a call in without counting it, for the thread that closes the guard."""
        # Any number will do that isn't 0 and that this consumer's callers share.
        token = _CALLER.set(id(self))
        try:
            yield
        finally:
            _CALLER.reset(token)

    def check(self) -> None:
        """Raises `FailedPrecondition` once closed."""
        if self.closed:
            raise FailedPrecondition("the stream's reader is closed; pull again for a new one")

    def close(self) -> None:
        """Lets no further call in, and waits until the last one has left."""
        with self._changed:
            self.closed = True
            self._changed.wait_for(lambda: self._inside == 0)
