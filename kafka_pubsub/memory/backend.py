"""The ports in memory: one backend is one process's view of a cluster."""

from __future__ import annotations

from kafka_pubsub.config import Batching
from kafka_pubsub.memory.admin import MemoryAdmin
from kafka_pubsub.memory.catalog import MemoryCatalog
from kafka_pubsub.memory.clock import Clock
from kafka_pubsub.memory.cluster import MemoryCluster
from kafka_pubsub.memory.faults import FaultPlan
from kafka_pubsub.memory.reader import MemoryReader
from kafka_pubsub.memory.record_fetch import MemoryRecordFetch
from kafka_pubsub.memory.transactions import MemoryTransactions
from kafka_pubsub.memory.writer import MemoryWriter
from kafka_pubsub.ports import Backend

__all__ = ["MemoryBackend"]

#: Unreported records that a writer holds before `append` refuses: librdkafka's `queue.buffering.max.messages`.
_WRITER_LIMIT = 100_000

#: Seconds that a member lives without a call, as long as librdkafka lets an application not poll: members of one
#: process don't die unseen. A simulation of processes that die passes a session's 6 s instead.
SESSION_TIMEOUT = 300.0


class MemoryBackend(Backend):
    """A `Backend` over a cluster in memory; several may share one `cluster`, as processes share a Kafka.

    With a `clock` of the caller's own nothing ever waits: a call does what can be done now and returns.
    `faults` and `session_timeout` (seconds that a reader may stay away) concern this backend only.

    Example:
        first = MemoryBackend()
        second = MemoryBackend(cluster=first.cluster)
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        cluster: MemoryCluster | None = None,
        faults: FaultPlan | None = None,
        session_timeout: float = SESSION_TIMEOUT,
        writer_limit: int = _WRITER_LIMIT,
    ) -> None:
        if cluster is not None and clock is not None:
            raise ValueError("clock: a cluster has one already; pass the clock where the cluster is made")
        self.cluster = cluster or MemoryCluster(clock)
        self._faults = faults or FaultPlan()
        self._session_timeout = session_timeout
        self._writer_limit = writer_limit
        self._admin = MemoryAdmin(self.cluster, self._faults)
        self._catalog = MemoryCatalog(self.cluster, self._faults)

    @property
    def address(self) -> str:
        """Nowhere: no tool of Kafka's finds it."""
        return "memory"

    @property
    def admin(self) -> MemoryAdmin:
        """Topics and groups."""
        return self._admin

    @property
    def catalog(self) -> MemoryCatalog:
        """What topics and subscriptions there are."""
        return self._catalog

    def writer(self, batching: Batching, max_batch_bytes: int) -> MemoryWriter:
        """A new writer; nothing is batched here, so the arguments change nothing."""
        return MemoryWriter(self.cluster, self._faults, self._writer_limit)

    def reader(self, group: str, member: str) -> MemoryReader:
        """A new, unsubscribed member; its id in the group is `member` and a number."""
        return MemoryReader(self.cluster, self._faults, group, member, self._session_timeout)

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        """A transactional writer; of two under one id the later one shuts the earlier out."""
        return MemoryTransactions(self.cluster, self._faults, transactional_id)

    def record_fetch(self) -> MemoryRecordFetch:
        """A reader of single records."""
        return MemoryRecordFetch(self.cluster, self._faults)

    def close(self) -> None:
        """Does nothing: the cluster lives on for the other backends."""
