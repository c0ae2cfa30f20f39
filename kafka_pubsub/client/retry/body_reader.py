"""Reads the bodies of parked messages when their turn comes; memory holds only an index of them.

Rules
1. One thread, one reader outside of the group: its reads never use main's fetch credit.
2. Every request is answered once: with the records found, those gone for good, and those to ask for again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafka_pubsub.client.threads import ThreadedQueue
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.ports import RecordFetch

__all__ = ["BodyReader", "BodyRequest", "FoundBodies"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Bytes of bodies read for one request: what a partition keeps at hand (`core/retry/body_cache.py`).
MAX_BYTES = 4 * 1024 * 1024
#: Seconds for one request; the rest is asked for again.
TIMEOUT = 5.0
#: Seconds before a request that failed is answered, so that asking again doesn't spin.
PAUSE = 0.5


class BodyRequest(NamedTuple):
    """Offsets of a retry partition, under one ownership (epoch) of it."""

    place: TopicPartition
    epoch: int
    offsets: Sequence[int]


class FoundBodies(NamedTuple):
    """The answer: records by rising offset, and offsets at which there is none any more."""

    request: BodyRequest
    records: Sequence[StoredRecord] = ()
    missing: Sequence[int] = ()


class BodyReader:
    """Reads on a thread of its own, which starts with the first request."""

    def __init__(
        self,
        record_fetch: Callable[[], RecordFetch],
        found: Callable[[FoundBodies], None],
        name: str = "kafka_pubsub-bodies",
    ) -> None:
        self._make = record_fetch
        self._found = found
        self._requests: ThreadedQueue[BodyRequest] = ThreadedQueue(self._work, name)

    def ask(self, request: BodyRequest) -> None:
        """Any thread may call."""
        self._requests.put(request)

    def close(self, timeout: float) -> bool:
        """Ends; False if that takes longer than `timeout` seconds."""
        return self._requests.close(timeout)

    def _work(self) -> None:
        fetch: RecordFetch | None = None
        try:
            while (request := self._requests.get()) is not None:
                try:
                    fetch = fetch or self._make()
                    found = fetch.fetch(request.place, request.offsets, MAX_BYTES, TIMEOUT)
                except PubSubError as error:
                    log.warning(
                        "reading %d messages of %s again: %s", len(request.offsets), request.place, error
                    )
                    time.sleep(PAUSE)
                    self._found(FoundBodies(request))
                else:
                    self._found(FoundBodies(request, found.records, found.missing))
                    del found  # megabytes that would stay in memory until the next request
        except Exception:
            log.exception("reading bodies failed; parked messages of this stream won't be delivered here")
            raise
        finally:
            if fetch is not None:
                fetch.close()
