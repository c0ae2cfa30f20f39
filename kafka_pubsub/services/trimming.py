"""Deletes what a service needs no more of its logs, now and then, on a thread of its own.

Rules
1. Only below what is committed. A deletion that fails is tried again with the next.
2. The thread starts with the first deletion.
3. Records that are kept go one round later, so that a client can read on from a position that was committed when it
   began. At the end all go: what is left would be delivered again if the broker forgets the positions.
"""

from __future__ import annotations

import logging
import threading

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import TopicPartition

__all__ = ["EVERY", "Trimming"]

_log = logging.getLogger("kafka_pubsub.service")

#: Seconds between two deletions. A broker frees whole segments only, and each deletion holds up transactions (tried).
EVERY = 30.0
#: Seconds that closing waits for one.
_CLOSING = 10.0


class Trimming:
    """What may be deleted of each partition."""

    def __init__(self, admin: Admin, every: float = EVERY) -> None:
        self._admin, self._every = admin, every
        self._troubles = TroubleLog(_log)
        self._lock = threading.Lock()
        self._allowed: dict[TopicPartition, int] = {}
        # Of records that are kept: allowed since the last round.
        self._kept: dict[TopicPartition, int] = {}
        self._ending = threading.Event()
        self._trims_last = True
        self._thread: threading.Thread | None = None

    def allow(self, partition: TopicPartition, before: int, *, kept: bool = False) -> None:
        """The records below the offset may go; `kept` (default False): a round later."""
        with self._lock:
            (self._kept if kept else self._allowed)[partition] = before
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kafka_pubsub-trimming", daemon=True)
                self._thread.start()

    def close(self, *, trim: bool = True) -> None:
        """Ends; deletes what may go once more, unless topics may have been made again since (`trim` False)."""
        self._trims_last = trim
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_CLOSING)

    def _work(self) -> None:
        while not self._ending.wait(self._every):
            self._trim()
        if self._trims_last:
            self._trim()
            self._trim()

    def _trim(self) -> None:
        with self._lock:
            allowed, self._allowed, self._kept = self._allowed, self._kept, {}
        by_topic: dict[str, dict[int, int]] = {}
        for place, before in allowed.items():
            by_topic.setdefault(place.topic, {})[place.partition] = before
        for topic, offsets in by_topic.items():
            try:
                self._admin.trim(topic, offsets)
            except PubSubError as error:
                self._troubles.tell(error, "handled records of %s weren't deleted yet: %s", topic, error)
                with self._lock:
                    for number, offset in offsets.items():
                        self._allowed.setdefault(TopicPartition(topic, number), offset)
