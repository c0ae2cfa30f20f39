"""The `LogWriter` port for the in-memory Kafka.

Theory: `append` stores a record at once; its report waits in a queue until a thread polls, because Kafka's client
runs reports there, too.

Rules
1. Reports come in the order of the appends, outside every lock, in the thread that polls.
2. The queue holds `limit` unreported records; beyond that `append` raises `BufferError`, as in librdkafka.
3. Records without a key go to the partitions in turn; those with a key go where Java's producer puts them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    PublishError,
    PubSubError,
)
from kafka_pubsub.log.memory.cluster import MemoryCluster, refusal
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.log.ports import LogWriter
from kafka_pubsub.model import Header, StoredRecord, TopicPartition

__all__ = ["MemoryWriter"]

Report = Callable[[object, StoredRecord], None]


class MemoryWriter(LogWriter):
    """A `LogWriter` in memory. Any thread may use it."""

    def __init__(self, cluster: MemoryCluster, faults: FaultPlan, limit: int) -> None:
        self._cluster = cluster
        self._faults = faults
        self._limit = limit
        self._closed = False
        # Unreported records in the order of their appends: the time of the report, and its function.
        self._queue: deque[tuple[float, Report, PubSubError | None, MemoryRecord]] = deque()
        # The partition of the next record without a key, by topic.
        self._next: dict[str, int] = {}
        # Held while reports run, so that two polling threads keep their order.
        self._reporting = threading.RLock()
        self._reports_running = False
        if cluster.moved is not None:
            cluster.moved.enter(self)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: Report,
        partition: int = -1,
    ) -> None:
        """Stores a record and queues its report; raises `BufferError` when the queue is full."""
        outcome = self._faults.append(topic, key, value)
        delay = self._faults.report_delay(topic, key)
        with self._cluster.change() as now:
            if self._closed:
                raise FailedPrecondition("the writer is closed")
            if len(self._queue) >= self._limit:
                raise BufferError(f"{self._limit} records wait for their reports: poll and try again")
            record, error = self._store(topic, value, key, headers, outcome, partition)
            self._queue.append((now + delay, on_delivery, error, record))

    def poll(self, timeout: float) -> int:
        """Runs the reports that are due; waits up to `timeout` seconds for the first; returns how many ran."""
        deadline = self._cluster.real.now() + timeout
        while True:
            seen = self._cluster.version
            served = self._run_due()
            if served or not self._cluster.blocking or not self._wait(seen, deadline):
                return served

    def flush(self, timeout: float) -> int:
        """Waits until everything was reported; returns how many weren't."""
        deadline = self._cluster.real.now() + timeout
        while self._queue:
            if not self.poll(max(0.0, deadline - self._cluster.real.now())):
                break
        # Another thread may still run a report that is no longer in the queue.
        if self._reporting.acquire(timeout=max(0.0, deadline - self._cluster.real.now())):
            self._reporting.release()
        return len(self._queue)

    def relearn(self, topic: str) -> int:
        """Returns how many partitions the topic has; each append looks it up anyway."""
        error = self._faults.request("relearn", topic)
        if error is not None:
            raise error
        with self._cluster.changed:
            return self._cluster.info(topic).partitions

    def explain(self, error: object, topic: str = "") -> PubSubError:
        """Returns the report's error, which is one of this package already."""
        return error if isinstance(error, PubSubError) else PublishError(f"publish failed: {error}")

    def close(self) -> None:
        """Closes the writer; records that weren't reported never are."""
        with self._cluster.change():
            self._closed = True
            self._queue.clear()
        if self._cluster.moved is not None:
            self._cluster.moved.leave(self)

    # As a sleeper of the clock

    def due_at(self) -> None:
        """Returns None: reports come in real time."""

    def under_way(self, *, callbacks: bool) -> str:
        """Returns that reports wait or run, if they do."""
        with self._cluster.changed:
            due = bool(self._queue) and self._queue[0][0] <= self._cluster.real.now()
        return "published messages are reported" if due or self._reports_running else ""

    def wake(self) -> None:
        """Does nothing: a thread polls."""

    def _store(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        outcome: RequestOutcome,
        partition: int,
    ) -> tuple[MemoryRecord, PubSubError | None]:
        milliseconds = self._cluster.now_ms()
        error = refusal(self._cluster, topic, value, key, headers)
        if error is None and outcome is RequestOutcome.REFUSED:
            error = BrokerUnavailable("injected: the record wasn't stored")
        if error is not None:
            return MemoryRecord(topic, None, None, key, value, headers, milliseconds), error
        at = TopicPartition(topic, self._partition(topic, key, partition))
        record = self._cluster.log(at).append(key, value, headers, milliseconds)
        if outcome is not RequestOutcome.DONE:
            lost = DeadlineExceeded("injected: no answer came; the record may be in the topic")
            return MemoryRecord(topic, at.partition, None, key, value, headers, milliseconds), lost
        return record, None

    def _partition(self, topic: str, key: bytes | None, wanted: int) -> int:
        count = self._cluster.info(topic).partitions
        if key is not None:
            return partition_of(key, count)
        if wanted >= 0:
            return wanted
        chosen = self._next.get(topic, 0) % count
        self._next[topic] = chosen + 1
        return chosen

    def _run_due(self) -> int:
        served = 0
        with self._reporting:
            while (entry := self._take_due()) is not None:
                _, report, error, record = entry
                report(error, record)
                served += 1
            self._reports_running = False
        return served

    def _take_due(self) -> tuple[float, Report, PubSubError | None, MemoryRecord] | None:
        with self._cluster.changed:
            if self._queue and self._queue[0][0] <= self._cluster.real.now():
                self._reports_running = True
                return self._queue.popleft()
            return None

    def _wait(self, seen: int, deadline: float) -> bool:
        """Waits until a report is due; False when the time is up."""
        with self._cluster.changed:
            now = self._cluster.real.now()
            if now >= deadline:
                return False
            due = self._queue[0][0] if self._queue else deadline
            if self._cluster.version == seen:
                self._cluster.changed.wait(max(0.0, min(deadline, due) - now))
            return True
