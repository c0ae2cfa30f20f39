"""Pauses and resumes that the runner has decided on, and the fetcher does between two reads.

Rules
1. They are done in the order in which they were decided.
2. What was decided of a partition before it was taken on anew isn't done: the log's client fetches it from then on, and
   nothing would ever end a pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from kafka_pubsub.core.delivery.fetch_window import Change
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.ports import LogReader

__all__ = ["PausedPartitions"]


class PausedPartitions:
    """The valves of one reader; `place` names a partition of the home topic."""

    def __init__(self, reader: LogReader, place: Callable[[int], TopicPartition]) -> None:
        self._reader = reader
        self._place = place
        self._changes: deque[Change[int]] = deque()

    def turn(self, change: Change[int]) -> None:
        """To be done by `work`, soon."""
        self._changes.append(change)

    def forget(self, numbers: Container[int]) -> None:
        """These are taken on anew (rule 2)."""
        for _ in range(len(self._changes)):
            change = self._changes.popleft()
            self._changes.append(Change(*([n for n in some if n not in numbers] for some in change)))

    def work(self) -> None:
        """Does what was decided; for the thread that reads."""
        while self._changes:
            change = self._changes.popleft()
            self._reader.pause([self._place(number) for number in change.pause])
            self._reader.resume([self._place(number) for number in change.resume])
