"""The `Backend` port for the in-memory Kafka; one backend stands for one process."""

from __future__ import annotations

from kafka_pubsub.config import Batching
from kafka_pubsub.log.memory.admin import MemoryAdmin
from kafka_pubsub.log.memory.catalog import MemoryCatalog
from kafka_pubsub.log.memory.clock import Clock
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.log.memory.record_fetch import MemoryRecordFetch
from kafka_pubsub.log.memory.tail import MemoryTail
from kafka_pubsub.log.memory.transactions import MemoryTransactions
from kafka_pubsub.log.memory.writer import MemoryWriter
from kafka_pubsub.log.ports import Backend, MovableClock
from kafka_pubsub.model import TopicPartition

__all__ = ["MemoryBackend"]

#: The most unreported records in a writer; then `append` refuses: librdkafka's `queue.buffering.max.messages`.
_WRITER_LIMIT = 100_000

#: Seconds for which a member lives without a call, as librdkafka's limit for an application that doesn't poll. A
#: simulation of processes that die passes a session's 6 s instead.
SESSION_TIMEOUT = 300.0


class MemoryBackend(Backend):
    """A `Backend` over a cluster in memory; several may share one `cluster`, as processes share a Kafka cluster.

    `clock`: the cluster's clock, by default the real time; of a `VirtualClock` the test moves the time. `faults` and
    `session_timeout` (real seconds for which a reader may make no call) concern this backend only.

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
        """No address: Kafka's tools can't reach it."""
        return "memory"

    @property
    def clock(self) -> MovableClock | None:
        """The clock that a test moves; None: the time is real."""
        return self.cluster.moved

    @property
    def admin(self) -> MemoryAdmin:
        """The requests about topics and groups."""
        return self._admin

    @property
    def catalog(self) -> MemoryCatalog:
        """The catalog of topics and subscriptions."""
        return self._catalog

    def writer(self, batching: Batching, max_batch_bytes: int, durable: bool = True) -> MemoryWriter:
        """Returns a new writer; it doesn't batch and loses nothing, so the arguments change nothing."""
        return MemoryWriter(self.cluster, self._faults, self._writer_limit)

    def reader(self, group: str, member: str, *, spread: bool = False, lanes: bool = False) -> MemoryReader:
        """Returns a new member, not subscribed yet; its id in the group is `member` and a number."""
        return MemoryReader(self.cluster, self._faults, group, member, self._session_timeout, spread=spread)

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        """Returns a transactional writer; of two under one id the later one fences the earlier one."""
        return MemoryTransactions(self.cluster, self._faults, transactional_id)

    def record_fetch(self) -> MemoryRecordFetch:
        """Returns a reader of single records."""
        return MemoryRecordFetch(self.cluster, self._faults)

    def tail(self, partition: TopicPartition, offset: int) -> MemoryTail:
        """Returns a reader of what is stored from the offset on."""
        return MemoryTail(self.cluster, partition, offset)

    def close(self) -> None:
        """Does nothing: the cluster stays for the other backends."""
