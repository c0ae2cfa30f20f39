"""Publishing to one topic: checks, order, flow control, and a future for each message.

Rules
1. Argument errors are raised by the call; whatever happens later comes through the future.
2. No gap: after a failed message of a key, the key is paused before the failure is visible to anybody, and
   nothing of it is queued until `resume`. The writer sees to it that what was queued behind the failed one fails too.
3. One lock per topic makes "is the key paused, is there room, append" one step. It is held for microseconds;
   delivery reports don't take it unless somebody waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka_pubsub.client.futures import CallbackThread, PublishFuture
from kafka_pubsub.client.publish_checks import (
    SIZE_SLACK,
    check_size,
    encode_attributes,
    encode_key,
    refuse_data,
)
from kafka_pubsub.client.publish_flow import Outstanding
from kafka_pubsub.client.publish_pool import Pump, WriterPool
from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    OrderingKeyPaused,
    PublishError,
)
from kafka_pubsub.model import Header, StoredRecord

__all__ = ["PublishTarget", "TopicPublisher"]

_fork_count = 0


def _count_fork() -> None:
    global _fork_count
    _fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


class PublishTarget(NamedTuple):
    """What a publisher must know of its topic. `ordering`: as configured, None when never said either way."""

    ordering: bool | None
    max_message_bytes: int


class TopicPublisher:
    """Publishes to one topic. Made without I/O; `target` is asked at the first publish."""

    def __init__(
        self,
        name: str,
        target: Callable[[], PublishTarget],
        writers: WriterPool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._ask_target = target
        self._writers = writers
        self._clock = clock
        self._lock = threading.Lock()
        self._batching = Batching()
        self._outstanding = Outstanding(self._lock, PublishFlow())
        self._ordering_override: bool | None = None
        self._paused: dict[bytes, PublishError] = {}
        self._pump: Pump | None = None
        self._target: PublishTarget | None = None
        self._roomy_size = 0
        self._born = _fork_count
        self._closed = False

    def publish(
        self,
        data: bytes,
        *,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> PublishFuture:
        """Queues a message; the future resolves to its id once it is on the in-sync replicas."""
        raise NotImplementedError

    def resume(self, ordering_key: str) -> None:
        """Allows publishing of a key again after a failure; nothing happens if it isn't paused."""
        self._paused.pop(encode_key(ordering_key), None)

    def configure(
        self,
        *,
        batching: Batching | None = None,
        flow: PublishFlow | None = None,
        message_ordering: bool | None = None,
    ) -> None:
        """Changes how this process publishes to the topic."""
        raise NotImplementedError

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was published before has been stored or has failed."""
        raise NotImplementedError

    def close(self, timeout: float = 30) -> None:
        """Flushes, then fails what remains."""
        raise NotImplementedError
