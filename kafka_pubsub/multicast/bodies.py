"""The batches that wait in an inbox: the first ones with their bodies, the others read again when they are released.

Rules
1. While a topic waits for another one its inbox is read on, because what it waits for comes in there. So bodies beyond
   the room aren't kept.
2. What is read again is read in the order of the log, some batches at a time: that is nearly the order of release.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import StoredRecord, TopicPartition
from kafka_pubsub.multicast.records import StageRecord

__all__ = ["Bodies"]

#: Bytes that are read again at once; how many batches that are, and seconds for it.
_BYTES, _AT_ONCE, _SECONDS = 2 * 1024 * 1024, 64, 10.0


class Bodies:
    """The batches of one inbox that aren't released, by their names; `room` bytes of them are kept."""

    def __init__(self, backend: Backend, place: TopicPartition, room: int) -> None:
        self._backend, self._place, self._room = backend, place, room
        # Its stage and offset, in the order of the log.
        self._stages: dict[str, tuple[StageRecord, int]] = {}
        self._records: dict[int, StoredRecord] = {}
        self.size = 0

    def add(self, offset: int, staged: StageRecord, record: StoredRecord) -> None:
        """Takes a batch; one that is there already stays as it is."""
        if staged.stage.message not in self._stages:
            self._stages[staged.stage.message] = staged, offset
            self._keep(offset, record)

    def _keep(self, offset: int, record: StoredRecord) -> None:
        if self.size < self._room:
            self._records[offset] = record
            self.size += len(record)

    def staged(self, message: str) -> StageRecord:
        """Returns the stage of a batch."""
        return self._stages[message][0]

    def record(self, message: str) -> StoredRecord:
        """Returns the record of a batch, which may have to be read again."""
        offset = self._stages[message][1]
        if offset not in self._records:
            self._read_again(offset)
        return self._records[offset]

    def drop(self, message: str) -> None:
        """Forgets a batch."""
        _, offset = self._stages.pop(message, (None, -1))
        record = self._records.pop(offset, None)
        self.size -= 0 if record is None else len(record)

    def keep_only(self, holds: Callable[[str], bool]) -> None:
        """Forgets the batches that aren't held any more."""
        for message in [each for each in self._stages if not holds(each)]:
            self.drop(message)

    def _read_again(self, first: int) -> None:
        wanted = (at for _, at in self._stages.values() if at >= first and at not in self._records)
        fetch = self._backend.record_fetch()
        try:
            found = fetch.fetch(self._place, list(islice(wanted, _AT_ONCE)), _BYTES, _SECONDS).records
        finally:
            fetch.close()
        for record in found:
            self._records[record.offset() or 0] = record
            self.size += len(record)
        if first not in self._records:
            raise BrokerUnavailable(
                f"offset {first} of {self._place.topic!r} couldn't be read again within {_SECONDS:g} s"
            )
