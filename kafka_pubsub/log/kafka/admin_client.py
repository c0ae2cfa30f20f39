"""librdkafka's admin client, without a race of librdkafka's that writes to freed memory and so ends the process.

Theory. A request to the leaders of partitions (`list_offsets`, `delete_records`) looks for these leaders on the thread
that makes it. If one isn't known, as that of a topic that was just deleted, the request waits for metadata. When some
come, for whatever reason, librdkafka's own thread goes on with the request, though the first may still be at work on it
(2.16; seen as corrupted heaps within a minute of both calls on two threads, while topics came and went).

Rules
1. Metadata aren't asked for while such a request is being made, and the other way round. Its answer isn't waited for.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from kafka_pubsub.log.kafka.configuration import ConfigValue

__all__ = ["LockedAdminClient"]

_Futures = dict[TopicPartition, Future[object]]


class LockedAdminClient(AdminClient):
    """An `AdminClient` that threads may share."""

    def __init__(self, settings: dict[str, ConfigValue], logger: object = None) -> None:
        # Held while one of these requests is made.
        self._making = threading.Lock()
        super().__init__(settings, logger=logger)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Asks for metadata."""
        asked = () if topic is None else (topic,)
        with self._making:
            return super().list_topics(*asked, timeout=timeout)

    def list_offsets(  # type: ignore[override]  # as in the client itself
        self, topic_partition_offsets: dict[TopicPartition, OffsetSpec], **options: object
    ) -> _Futures:
        """Asks leaders for offsets."""
        with self._making:
            return super().list_offsets(topic_partition_offsets, **options)

    def delete_records(  # type: ignore[override]  # as in the client itself
        self, topic_partition_offsets: list[TopicPartition], **options: object
    ) -> _Futures:
        """Has leaders delete records."""
        with self._making:
            return super().delete_records(topic_partition_offsets, **options)
