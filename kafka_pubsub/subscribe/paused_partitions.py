"""Pauses and resumes of partitions: the runner decides on them, and the fetcher does them between two reads.

Rules
1. They are done in the order in which they were decided.
2. A decision from before a partition was taken on anew is dropped: the log's client fetches the partition from then on,
   and no later decision would end a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.fetch_window import Change

__all__ = ["PausedPartitions"]


class PausedPartitions:
    """The decided pauses and resumes of one reader; `place` names a partition of the home topic."""

    def __init__(self, reader: LogReader, place: Callable[[PartitionId], TopicPartition]) -> None:
        self._reader = reader
        self._place = place
        self._changes: deque[Change[PartitionId]] = deque()

    @property
    def pending(self) -> bool:
        """Whether decisions wait for the next `work`."""
        return bool(self._changes)

    def turn(self, change: Change[PartitionId]) -> None:
        """Notes a decision for the next `work`."""
        self._changes.append(change)

    def forget(self, numbers: Container[PartitionId]) -> None:
        """Drops the decisions on partitions that are taken on anew (rule 2)."""
        for _ in range(len(self._changes)):
            change = self._changes.popleft()
            self._changes.append(Change(*([n for n in some if n not in numbers] for some in change)))

    def work(self) -> None:
        """Does the pauses and resumes that were decided; the thread that reads calls it."""
        while self._changes:
            change = self._changes.popleft()
            self._reader.pause([self._place(number) for number in change.pause])
            self._reader.resume([self._place(number) for number in change.resume])
