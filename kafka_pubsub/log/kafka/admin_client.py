"""librdkafka's admin client, without a race of librdkafka's that writes to freed memory and so ends the process.

Theory. A request to the leaders of partitions (`list_offsets`, `delete_records`) looks for these leaders on the thread
that makes it. If one isn't known, as that of a topic that was just deleted, the request waits for metadata. When some
come, for whatever reason, librdkafka's own thread goes on with the request, though the first may still be at work on it
(2.16; seen as corrupted heaps within a minute of both calls on two threads, while topics came and went).

Rules
1. Metadata aren't asked for while such a request is being made, and the other way round. Its answer isn't waited for.
2. Metadata that an earlier request to leaders asked for, or `describe_topics`, may still come while a request is made
   (no damage in 75 s of three threads that asked for offsets and one for ids). Holding the lock until the answer would
   cost more: a leader that is away would hold up all other requests, and the look for a new one (`serving`).
3. Waiting for another thread's request counts as time of one's own: silent brokers hold metadata back for a second.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from kafka_pubsub.log.kafka.configuration import ConfigValue

__all__ = ["LockedAdminClient"]

_Futures = dict[TopicPartition, Future[object]]

#: Seconds for a request, as in librdkafka (`socket.timeout.ms`).
_SECONDS = 60.0


class LockedAdminClient(AdminClient):
    """An `AdminClient` that threads may share."""

    def __init__(self, settings: dict[str, ConfigValue], logger: object = None) -> None:
        # Held while one of these requests is made.
        self._making = threading.Lock()
        super().__init__(settings, logger=logger)

    def list_topics(self, topic: str | None = None, timeout: float = _SECONDS) -> ClusterMetadata:
        """Asks for metadata."""
        asked = () if topic is None else (topic,)
        with self._alone(timeout) as left:
            return super().list_topics(*asked, timeout=left)

    def list_offsets(  # type: ignore[override]  # as in the client itself
        self,
        topic_partition_offsets: dict[TopicPartition, OffsetSpec],
        *,
        request_timeout: float = _SECONDS,
        **options: object,
    ) -> _Futures:
        """Asks leaders for offsets."""
        with self._alone(request_timeout) as left:
            return super().list_offsets(topic_partition_offsets, request_timeout=left, **options)

    def delete_records(  # type: ignore[override]  # as in the client itself
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        request_timeout: float = _SECONDS,
        **options: object,
    ) -> _Futures:
        """Has leaders delete records."""
        with self._alone(request_timeout) as left:
            return super().delete_records(topic_partition_offsets, request_timeout=left, **options)

    @contextlib.contextmanager
    def _alone(self, seconds: float) -> Iterator[float]:
        """Waits until no such request is being made; gives the seconds that are left, or raises `_TIMED_OUT`."""
        end = time.monotonic() + seconds
        if not self._making.acquire(timeout=seconds):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "another request is still being made"))
        try:
            yield max(end - time.monotonic(), 0.001)
        finally:
            self._making.release()
