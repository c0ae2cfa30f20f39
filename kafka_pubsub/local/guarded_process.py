"""The process of a broker that ends with this process: launching it, signalling it, waiting for it.

Rule: the guard watches the process from its launch until its end is known here, so it ends even if we are killed.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

from kafka_pubsub.local.broker_process import launch, prepare
from kafka_pubsub.local.installation import Installation
from kafka_pubsub.local.node_config import NodeFiles, NodeSettings
from kafka_pubsub.local.orphan_guard import Guard

__all__ = ["TiedBroker"]


class TiedBroker:
    """One broker's process; its `files` remain when it ends, and the next launch uses them."""

    def __init__(self, files: NodeFiles, guard: Guard) -> None:
        self.files = files
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process is alive, which a paused one is too."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id while the process is alive, else None."""
        return self._process.pid if self._process is not None and self.running else None

    def launch(
        self,
        installation: Installation,
        settings: NodeSettings,
        heap_mb: int,
        on_progress: Callable[[str], None],
    ) -> None:
        """Writes the files, formats the directory if it is new, and starts the process."""
        self._forget()
        with prepare(installation, self.files, settings) as lock:
            on_progress(f"Starting Kafka on {settings.bootstrap}")
            self._process = launch(installation, self.files, heap_mb, lock)
        self._guard.watch(self._process.pid)

    def send(self, how: signal.Signals) -> None:
        """Sends a signal to the process, if it is alive."""
        if self._process is not None and self.running:
            self._process.send_signal(how)

    def wait_end(self, deadline: float) -> None:
        """Waits until the process has ended; kills it when `deadline` (monotonic) passes."""
        if self._process is not None:
            try:
                self._process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            self._guard.spare(self._process.pid)
        self._process = None
