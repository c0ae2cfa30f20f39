"""`LocalKafka`: a real Kafka for the length of a `with` block.

Theory: it owns one Java process and, unless told otherwise, one temporary directory. The port is chosen once
and kept, so that clients find the broker again after `stop()` or `kill()` and `start()`: that is what tests
of failures need.
Rules: the process dies with us, whatever we die of. A temporary directory lives until `close()`, so its data
survives a restart in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_pubsub.local.broker_process import READY_TIMEOUT_S, launch, prepare, wait_until_ready
from kafka_pubsub.local.errors import LocalKafkaError, PortInUse
from kafka_pubsub.local.guard import Guard
from kafka_pubsub.local.installation import Installation, locate
from kafka_pubsub.local.node import NodeFiles, NodeSettings
from kafka_pubsub.local.ports import free_ports, is_free
from kafka_pubsub.local.settings import DEFAULT_HEAP_MB, STOP_TIMEOUT_S, checked_heap, checked_port

__all__ = ["LocalKafka"]

# Between choosing a free port and binding it another process may take it.
SPARE_PORTS = 2


class LocalKafka:
    """A single-node Apache Kafka on this machine, stopped when the `with` block ends or this process dies.

    >>> with LocalKafka() as kafka:
    ...     pubsub = PubSub(kafka.bootstrap)

    Without `data_dir` its data is temporary. Without `port` it takes a free one. `java` and `kafka_home` name
    an installed Java 17+ and an unpacked Kafka 4.x to use instead of those of the extra `[local]`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        *,
        heap_mb: int = DEFAULT_HEAP_MB,
        ready_timeout: float = READY_TIMEOUT_S,
        java: str | os.PathLike[str] | None = None,
        kafka_home: str | os.PathLike[str] | None = None,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._temporary = data_dir is None
        self._root = None if data_dir is None else Path(data_dir).expanduser().absolute()
        self._wanted_port = None if port is None else checked_port(port)
        self._settings: NodeSettings | None = None
        self._heap_mb = checked_heap(heap_mb)
        self._ready_timeout = ready_timeout
        self._java = java
        self._kafka_home = kafka_home
        self._on_progress = on_progress
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def bootstrap(self) -> str:
        """The broker's address, `host:port`."""
        if self._settings is None:
            raise LocalKafkaError("This Kafka wasn't started yet: use it in a `with` block, or call start().")
        return self._settings.bootstrap

    @property
    def data_dir(self) -> Path:
        """Where its files are; `broker.log` in it is its log."""
        if self._root is None:
            raise LocalKafkaError("This Kafka wasn't started yet, so it has no directory.")
        return self._root

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker and wait until it answers; does nothing when it runs already."""
        if self.running:
            return
        self._forget_process()
        installation = locate(java=self._java, kafka_home=self._kafka_home, on_progress=self._on_progress)
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="kafka-pubsub-"))
        # Only a port that nobody asked for and no client knows yet may be exchanged for another.
        fixed = self._settings.port if self._settings is not None else self._wanted_port
        for spare in range(SPARE_PORTS, -1, -1):
            try:
                self._start_once(installation)
                break
            except PortInUse as error:
                if error.port == fixed or not spare:
                    raise

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the broker answers (`start()` does); raises what it died of instead."""
        if self._settings is None or self._process is None:
            raise LocalKafkaError("This Kafka isn't running: call start() first.")
        limit = self._ready_timeout if timeout is None else timeout
        wait_until_ready(NodeFiles(self.data_dir), self._settings, lambda: not self.running, limit)

    def stop(self) -> None:
        """Stop the broker in order; its data stays, and `start()` brings it back on the same port."""
        self._end_process(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker at once, as a crash would (SIGKILL); `start()` brings it back on the same port."""
        self._end_process(signal.SIGKILL)

    def close(self) -> None:
        """Stop for good: data that was temporary is deleted."""
        # Nobody reads temporary data again, so there is nothing to flush for.
        self._end_process(signal.SIGKILL if self._temporary else signal.SIGTERM)
        if self._temporary and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
            self._settings = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_once(self, installation: Installation) -> None:
        before, files = self._settings, NodeFiles(self.data_dir)
        settings = self._choose_ports()
        try:
            with prepare(installation, files, settings) as lock:
                self._on_progress(f"Starting Kafka on {settings.bootstrap}")
                self._process = launch(installation, files, self._heap_mb, lock)
            self._guard = Guard(self._process.pid, files.root if self._temporary else None)
            self._settings = settings
            self.wait_ready()
        except BaseException:
            self._end_process(signal.SIGKILL)
            self._settings = before
            raise

    def _choose_ports(self) -> NodeSettings:
        port, controller_port = free_ports(2)
        kept = self._settings.port if self._settings is not None else self._wanted_port
        if kept is not None and not is_free(kept):
            raise PortInUse(kept)
        return NodeSettings(kept or port, controller_port)

    def _end_process(self, how: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._forget_process()

    def _forget_process(self) -> None:
        self._process = None
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.release()
            self._guard = None
