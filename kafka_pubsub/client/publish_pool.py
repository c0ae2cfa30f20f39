"""Writers, shared by topics with equal settings, each with the one thread that serves its delivery reports.

Rules
1. A pump's thread calls `poll` and `flush`; nobody else does. So reports of a writer come one after the other.
2. A writer lives until the pool is closed: topics come and go, connections to a cluster are worth keeping.
3. After a fork the child owns nothing here: threads and connections stayed in the parent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kafka_pubsub.client.futures import CallbackThread
from kafka_pubsub.client.ports import LogWriter
from kafka_pubsub.config import Batching

__all__ = ["Pump", "WriterPool"]

# Seconds. A report ends the wait at once; this only bounds how long a flush or a close goes unnoticed.
_POLL_S: Final = 0.1

_log = logging.getLogger("kafka_pubsub.publish")


class Pump:
    """A writer and its thread."""

    def __init__(self, writer: LogWriter, name: str) -> None:
        self.writer = writer
        self._flushes = 0
        self._stopping = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def flushing(self, more: int) -> None:
        """`1` when a flush begins, `-1` when it ends: in between, batches don't wait for their latency."""
        with self._lock:
            self._flushes += more

    def _serve(self) -> None:
        writer = self.writer
        while not self._stopping:
            try:
                if self._flushes:
                    writer.flush(_POLL_S)
                else:
                    writer.poll(_POLL_S)
            except Exception:
                _log.exception("serving delivery reports failed; going on")

    def stop(self) -> None:
        """Ends the thread and closes the writer; what wasn't reported by now never will be."""
        self._stopping = True
        self._thread.join()
        self.writer.close()


class WriterPool:
    """Hands out pumps, one for each pair of batching and batch limit."""

    def __init__(self, new_writer: Callable[[Batching, int], LogWriter]) -> None:
        self._new_writer = new_writer
        self._pumps: dict[tuple[Batching, int], Pump] = {}
        self._lock = threading.Lock()
        self.callbacks = CallbackThread()

    def pump(self, batching: Batching, max_batch_bytes: int) -> Pump:
        """The writer for these settings; connects in the background when it is new."""
        with self._lock:
            pump = self._pumps.get((batching, max_batch_bytes))
            if pump is None:
                writer = self._new_writer(batching, max_batch_bytes)
                pump = Pump(writer, f"kafka-pubsub-publish-{len(self._pumps)}")
                self._pumps[batching, max_batch_bytes] = pump
            return pump

    def close(self) -> None:
        """Stops all; close the topics' publishers first."""
        with self._lock:
            pumps, self._pumps = list(self._pumps.values()), {}
        for pump in pumps:
            pump.stop()
        self.callbacks.close(timeout=5)
