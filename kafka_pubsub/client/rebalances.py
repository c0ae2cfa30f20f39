"""What the group says: partitions that come, go or are lost, and a log that won't read on.

Theory. All of it is told on the fetcher, inside a read. What it means is for the runner to decide, so the fetcher asks
and waits; what has to be asked of the log before that, is asked here.

Rules
1. Whole or nothing: a layout that isn't the catalog's is refused before anything of it is delivered.
2. An outage says nothing about a subscription: an assignment is tried again for as long as it takes. The group goes on
   without us if it must.
3. At a revoke every commit has been answered before the last word is sent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_pubsub.client.ownership import Beginning, beginning
from kafka_pubsub.client.ports import LogReader
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, NotFound, PubSubError
from kafka_pubsub.model import Committed, TopicPartition

if TYPE_CHECKING:
    from kafka_pubsub.client.engine import Engine

__all__ = ["Rebalances"]

log = logging.getLogger("kafka_pubsub.subscriber")

#: Seconds that "not found" isn't believed at an assignment: a broker that has just started denies every topic.
DENIED = 10.0
#: Seconds between two tries to take an assignment on.
TRY_AGAIN = 0.5


class Rebalances:
    """Takes assignments on and gives them up, for one engine."""

    def __init__(
        self,
        engine: Engine,
        reader: LogReader,
        record: SubscriptionRecord,
        look_up: Callable[[], SubscriptionRecord],
    ) -> None:
        self.record = record
        self._engine = engine
        self._reader = reader
        self._look_up = look_up

    def place(self, number: int) -> TopicPartition:
        """A partition of the topic."""
        return TopicPartition(self.record.topic, number)

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """They are ours; where to read each from."""
        denied_until = time.monotonic() + DENIED
        while True:
            try:
                return self._take_on(partitions)
            except (BrokerUnavailable, DeadlineExceeded, NotFound) as error:
                told = isinstance(error, NotFound) and time.monotonic() > denied_until
                if told or not self._engine.fetches(threading.current_thread()):
                    raise
                log.warning("subscription %r: %s; trying again", self.record.name, error)
                time.sleep(TRY_AGAIN)

    def _take_on(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.record = self._look_up()  # rule 1
        # Others are younger than the layout that is being drained: they are read when it is the catalog's.
        partitions = [place for place in partitions if place.partition < self.record.partitions]
        committed = self._reader.committed(partitions)
        ranges = {place.partition: self._reader.log_range(place) for place in partitions}

        def begin(number: int, stored: Committed) -> Beginning:
            return beginning(self.record, number, stored, ranges[number])

        stored = {place.partition: committed[place] for place in partitions}
        positions = self._engine.take_on(stored, begin)
        return {self.place(number): position for number, position in positions.items()}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They go, with a last word."""
        self._engine.commit(self._engine.last_words([place.partition for place in partitions]))

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are gone."""
        self._engine.lose([place.partition for place in partitions])

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error."""
        if not fatal:
            log.warning("subscription %r: %s", self.record.name, error)
        elif partition is None:
            raise error
        else:
            self._stepped_out(partition, error)

    def _stepped_out(self, place: TopicPartition, error: PubSubError) -> None:
        """The log won't read on at our position; retention may have moved its start past us."""
        owned = self._engine.coordinator.owned.get(place.partition)
        if owned is None:
            return
        position = owned.offsets.position
        log_range = self._reader.log_range(place)
        log.warning("subscription %r: %s (position %d, log %s)", self.record.name, error, position, log_range)
        start = beginning(self.record, place.partition, Committed(position, ""), log_range)
        self._reader.seek(place, start.position)
