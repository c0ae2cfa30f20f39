"""`LocalKafka`: a real Kafka of one broker for the length of a `with` block; see `broker_set` for how it lives.

Rule: the broker's process ends with this process, even if that is killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from kafka_pubsub.local.broker_process import READY_TIMEOUT_S
from kafka_pubsub.local.broker_set import Fleet, FleetOptions, FleetOwner, require_root
from kafka_pubsub.local.errors import LocalKafkaError
from kafka_pubsub.local.node_config import SESSION_TIMEOUT_S
from kafka_pubsub.local.service_process import TiedServices
from kafka_pubsub.local.settings import DEFAULT_HEAP_MB, checked_heap, checked_port

__all__ = ["LocalKafka"]

NODE = 1


class LocalKafka(FleetOwner):
    """A single-node Apache Kafka on this machine, stopped when the `with` block ends or this process dies.

    >>> with LocalKafka() as kafka:
    ...     pubsub = PubSub(kafka.bootstrap)

    Without `data_dir` its data is temporary. Without `port` it takes a free one. `java` and `kafka_home` name
    an installed Java 17+ and an unpacked Kafka 4.x to use instead of those of the extra `[local]`. `session_timeout` is
    the number of seconds after which a silent broker counts as gone: a higher one tolerates a busy machine, and makes
    a start after a kill take as long. `services` (default False): whether a delay router and a sequencer run beside the
    broker, in a process of their own, from the first start until the end of the block; their log is `services.log`.

    It is quicker than a stock broker, and than that of `up`: the first member of a group waits for no others, and
    messages may have 10 MiB.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int | None = None,
        *,
        heap_mb: int = DEFAULT_HEAP_MB,
        ready_timeout: float = READY_TIMEOUT_S,
        session_timeout: float = SESSION_TIMEOUT_S,
        java: str | os.PathLike[str] | None = None,
        kafka_home: str | os.PathLike[str] | None = None,
        services: bool = False,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        options = FleetOptions(
            heap_mb=checked_heap(heap_mb),
            ready_timeout=ready_timeout,
            session_timeout=session_timeout,
            port=None if port is None else checked_port(port),
            java=java,
            kafka_home=kafka_home,
            on_progress=on_progress,
        )
        self._fleet = Fleet(data_dir, {NODE: ""}, options)
        self._temporary, self._wants_services = data_dir is None, services
        self._services: TiedServices | None = None

    @property
    def bootstrap(self) -> str:
        """The broker's address, `host:port`."""
        if not self._fleet.settings:
            raise LocalKafkaError("This Kafka wasn't started yet: use it in a `with` block, or call start().")
        return self._fleet.settings[NODE].bootstrap

    @property
    def data_dir(self) -> Path:
        """The directory of the broker's files; its log is `broker.log` there."""
        return require_root(self._fleet.root)

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs, else None."""
        return self._fleet.pid(NODE)

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._fleet.running(NODE)

    def start(self) -> None:
        """Starts the broker and waits until it answers; does nothing if the broker already runs."""
        self._fleet.start([NODE])
        if self._wants_services and self._services is None:
            self._services = TiedServices(self.bootstrap, self.data_dir)

    def close(self) -> None:
        """Stops the broker for good, and deletes temporary data."""
        if self._services is not None:
            self._services.close(at_once=self._temporary)
            self._services = None
        super().close()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Waits until the broker answers, as `start()` does; raises an error with the cause if the broker dies."""
        if not self._fleet.settings:
            raise LocalKafkaError("This Kafka isn't running: call start() first.")
        self._fleet.wait_ready([NODE], timeout)

    def stop(self) -> None:
        """Stops the broker cleanly; it keeps its data, and `start()` starts it again on the same port."""
        self._fleet.end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the broker at once, as a crash would (SIGKILL); `start()` starts it again on the same port."""
        self._fleet.end(signal.SIGKILL)
