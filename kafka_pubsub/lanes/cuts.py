"""Cuts what was read of a lane down to its window: the rest is read again when the lane's turn comes.

Theory. A read takes what the log's client has fetched, up to a thousand records of one lane. Of a lane that higher ones
hold up only some are worth their memory. So the rest is dropped before the core gets it, and the lane is paused at the
first record that was dropped.

Rule: the lane is sought at once, so that the reader's position never passes what was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from kafka_pubsub.log.ports import LogReader
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import LogEnd, StoredRecord
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.chooser import Batches
from kafka_pubsub.subscribe.lane_windows import NARROW, LaneWindows
from kafka_pubsub.subscribe.owned_partitions import OwnedPartitions
from kafka_pubsub.subscribe.partition.settings import RECORD_OVERHEAD
from kafka_pubsub.subscribe.retry_topic.layout import Layout

__all__ = ["LaneCuts"]


class LaneCuts:
    """The cuts of one stream's fetcher."""

    def __init__(
        self,
        windows: LaneWindows,
        partitions: OwnedPartitions,
        reader: LogReader,
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._windows = windows
        self._partitions = partitions
        self._reader = reader
        self._post = post

    def cut(self, batches: Batches, layout: Layout) -> tuple[Batches, int]:
        """Returns what is kept of each lane's records, and how many these are."""
        windows, owned = self._windows, self._partitions.owned
        kept: dict[PartitionId, Sequence[Record]] = {}
        for number in batches:
            windows.come(number, layout.lane(number).priority)
        for number, records in batches.items():
            most = len(records) if windows.is_wide(number) else self._most(number, records)
            if most < len(records) and number in owned:
                self._pause_at(number, cast("StoredRecord", records[most]), layout)
                kept[number] = records[:most]
            else:
                kept[number] = records
        kept = {number: records for number, records in kept.items() if records}
        return kept, sum(map(len, kept.values()))

    def _most(self, number: PartitionId, records: Sequence[Record]) -> int:
        """Returns how many of the records have room in a narrow lane; one if it holds none."""
        partitions = self._partitions
        if (partition := partitions.owned.get(number)) is None:
            return len(records)
        held = partition.unfinished
        left = self._windows.narrow_bytes(partitions.owned) - partition.buffered
        most = max(0 if held else 1, min(len(records), NARROW - held))
        for at in range(most):
            left -= len(records[at]) + RECORD_OVERHEAD
            if left < 0:
                return max(at, 0 if held else 1)
        return most

    def _pause_at(self, number: PartitionId, record: StoredRecord, layout: Layout) -> None:
        place, gate = layout.home(number), self._partitions.gate
        self._reader.pause([place])
        self._reader.seek(place, LogEnd(record.offset() or 0, record.leader_epoch()))
        self._post(lambda: gate.paused.add(number))
