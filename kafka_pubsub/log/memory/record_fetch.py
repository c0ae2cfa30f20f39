"""The `RecordFetch` port for the in-memory Kafka: reads single records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.ports import RecordFetch
from kafka_pubsub.model import Fetched, LogEnd, TopicPartition

__all__ = ["MemoryRecordFetch"]


class MemoryRecordFetch(RecordFetch):
    """A `RecordFetch` in memory. It never waits: records that aren't committed yet are left for the next call."""

    def __init__(self, cluster: MemoryCluster, faults: FaultPlan) -> None:
        self._cluster = cluster
        self._faults = faults
        self._closed = False

    def fetch(
        self, partition: TopicPartition, offsets: Sequence[int], max_bytes: int, timeout: float
    ) -> Fetched:
        """Returns the records at the offsets; see the port. A plan's `read_limit` stands for a time limit."""
        if self._closed:
            raise FailedPrecondition("the reader of single records is closed")
        error = self._faults.request("fetch", partition.topic)
        if error is not None:
            raise error
        wanted = sorted(set(offsets))
        wanted = wanted[: self._faults.read_limit("", "record-fetch", len(wanted))]
        records: list[MemoryRecord] = []
        missing: list[int] = []
        with self._cluster.changed:
            log = self._cluster.log(partition)
            for offset in wanted:
                if offset >= log.stable_end or max_bytes <= 0:
                    break
                record = log.at(offset)
                if record is None:
                    missing.append(offset)
                else:
                    records.append(record)
                    max_bytes -= len(record)
        return Fetched(tuple(records), tuple(missing))

    def lost_tails(
        self, read: Mapping[TopicPartition, LogEnd], timeout: float
    ) -> Mapping[TopicPartition, int]:
        """Returns the logs that lost records that were read, each with the first lost offset."""
        lost: dict[TopicPartition, int] = {}
        for place, end in read.items():
            error = self._faults.request("lost_tails", place.topic)
            if error is not None:
                raise error
            with self._cluster.changed:
                log = self._cluster.log(place)
                last = log.end_of(end.epoch)
                if log.start < end.offset and last < end.offset:
                    lost[place] = max(last, log.start)
        return lost

    def fetch_all(
        self, wanted: Mapping[TopicPartition, Sequence[int]], max_bytes: int, timeout: float
    ) -> Mapping[TopicPartition, Fetched]:
        """Returns the records of many partitions."""
        return {place: self.fetch(place, offsets, max_bytes, timeout) for place, offsets in wanted.items()}

    def close(self) -> None:
        """Does nothing: there is no connection."""
        self._closed = True
