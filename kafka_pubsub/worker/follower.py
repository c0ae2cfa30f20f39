"""Has a worker follow the file and the catalog, again and again.

Theory. Level-triggered: at each look the wanted units are compared with those that run, so a look that was missed costs
nothing but time. While the catalog can't be read, the last one that was read counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from kafka_pubsub.config import ConnectorRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.worker.settings import UnitSettings
from kafka_pubsub.worker.steering import Wanted, merge
from kafka_pubsub.worker.worker import Worker

__all__ = ["Follower"]

_log = logging.getLogger("kafka_pubsub.worker")

#: Seconds between two looks at the catalog.
LOOK = 0.5


class Follower:
    """Follows the file and the catalog with a worker. `read`: reads the catalog's records."""

    def __init__(self, worker: Worker, read: Callable[[], Mapping[str, ConnectorRecord]]) -> None:
        self._worker, self._read = worker, read
        # Guards the two sources.
        self._lock = threading.Lock()
        # Held for a look, and while the worker is told: the newest state of both is the last one that it is told.
        self._looking, self._bringing = threading.Lock(), threading.Lock()
        self._file: Mapping[str, UnitSettings] = {}
        self._records: Mapping[str, ConnectorRecord] = {}
        # Both together. It is asked for with each request, and changes seldom.
        self._wanted: dict[str, Wanted] = {}
        self._ending = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka_pubsub-worker-follower", daemon=True)
        self._troubles = TroubleLog(_log)

    def start(self, file: Mapping[str, UnitSettings]) -> None:
        """Begins with the units of the file; those of the catalog follow when it can be read."""
        self.read_file(file)
        self._thread.start()

    def read_file(self, file: Mapping[str, UnitSettings]) -> None:
        """Takes the units of a file that was read again; those that have given up start again."""
        with self._lock:
            self._file = file
            self._wanted = merge(file, self._records)
        self._bring(revive=True)

    def look_soon(self) -> None:
        """Has the catalog read at once, after a change of ours."""
        self._woken.set()

    def wanted(self) -> dict[str, Wanted]:
        """Returns the units that are wanted by the last look."""
        return self._wanted

    def stop(self) -> None:
        """Follows nothing more."""
        self._ending.set()
        self._woken.set()
        self._thread.join(5)

    def look(self) -> None:
        """Reads the catalog, and brings the worker to it."""
        with self._looking:
            try:
                records = dict(self._read())
            except PubSubError as error:
                self._troubles.tell(
                    error, "the catalog can't be read, its last state counts: %s", error.message
                )
                return
            with self._lock:
                self._records = records
                self._wanted = merge(self._file, records)
            self._bring(revive=False)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.look()
            except Exception:
                _log.exception("a look at the catalog has failed; the next one comes in %g s", LOOK)
            self._woken.wait(LOOK)
            self._woken.clear()

    def _bring(self, *, revive: bool) -> None:
        with self._bringing:
            wanted = self.wanted()
            running = {name: each.settings for name, each in wanted.items() if each.state == "running"}
            restarts = {name: each.restarts for name, each in wanted.items()}
            if not self._ending.is_set():
                self._worker.follow(running, restarts, revive=revive)
