"""Reads the bodies of messages in the retry topic when they are due; memory holds only an index of the messages.

Rules
1. There is one thread and one reader, outside of the group: its reads never use the home topic's fetch credit.
2. Every request gets one answer: the records found, and the offsets that are gone. The rest is asked for again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import RecordFetch
from kafka_pubsub.log.threads import ThreadedQueue
from kafka_pubsub.model import StoredRecord, TopicPartition

__all__ = ["BodyReader", "BodyRequest", "FoundBodies"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Bytes of bodies read for one request: as many as a partition caches (`subscribe/partition/body_cache.py`).
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
    """The answer: records by rising offset, and offsets that no longer have one."""

    request: BodyRequest
    records: Sequence[StoredRecord] = ()
    missing: Sequence[int] = ()


class BodyReader:
    """A reader with a thread of its own, which starts with the first request."""

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
        """Queues a request; any thread may call."""
        self._requests.put(request)

    def close(self, timeout: float) -> bool:
        """Ends the thread; False if that takes longer than `timeout` seconds."""
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
