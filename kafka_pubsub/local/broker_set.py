"""Brokers that are one cluster and end with this process: the common part of `LocalKafka` and `LocalCluster`.

Theory: a fleet is a directory, a guard, and as many nodes as there are brokers; one is the special case without a
quorum to wait for. Ports that clients know are chosen once and kept, so that they find a broker again after its
end and its start: that is what tests of failures need. The controllers' ports are known to the nodes only, so they
are chosen anew whenever none of them runs.
Rules: all nodes of a start are launched before one is waited for, because no broker answers without a majority of
controllers. Temporary data lives until `close()`, so it survives a restart in between. A start that fails leaves
no process behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_pubsub.local.broker_process import READY_TIMEOUT_S, new_cluster_id, wait_until_ready
from kafka_pubsub.local.diagnosis import explain_death
from kafka_pubsub.local.errors import LocalKafkaError, PortInUse
from kafka_pubsub.local.guarded_process import TiedBroker
from kafka_pubsub.local.installation import Installation, locate
from kafka_pubsub.local.node_config import SESSION_TIMEOUT_S, NodeFiles, NodeSettings
from kafka_pubsub.local.orphan_guard import Guard
from kafka_pubsub.local.settings import STOP_TIMEOUT_S
from kafka_pubsub.local.tcp_ports import free_ports, is_free

__all__ = ["Fleet", "FleetOptions", "FleetOwner"]

# Between choosing a free port and binding it another process may take it.
SPARE_PORTS = 2
# Seconds. When all nodes of a cluster stop, the last ones miss the majority that an orderly end takes and would wait
# for it for ever; Kafka survives a kill.
STOP_ALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options for local brokers; `port` is for a fleet of one broker."""

    heap_mb: int
    ready_timeout: float = READY_TIMEOUT_S
    port: int | None = None
    detour_ports: tuple[int, ...] = ()
    session_timeout: float = SESSION_TIMEOUT_S
    java: str | os.PathLike[str] | None = None
    kafka_home: str | os.PathLike[str] | None = None
    on_progress: Callable[[str], None] = lambda text: None


class Fleet:
    """The nodes of one cluster, by number; `folders` maps each to its directory below the root."""

    def __init__(
        self, data_dir: str | os.PathLike[str] | None, folders: Mapping[int, str], options: FleetOptions
    ) -> None:
        self._temporary = data_dir is None
        self._root = None if data_dir is None else Path(data_dir).expanduser().absolute()
        self._folders = dict(folders)
        self._options = options
        self._settings: dict[int, NodeSettings] = {}
        self._brokers: dict[int, TiedBroker] = {}
        self._guard: Guard | None = None

    @property
    def root(self) -> Path | None:
        """The directory of all nodes; None before the first start if it is temporary."""
        return self._root

    @property
    def settings(self) -> Mapping[int, NodeSettings]:
        """The nodes' settings; empty before the first start."""
        return self._settings

    def pid(self, node: int) -> int | None:
        """Returns the node's process id while it runs, else None."""
        return self._brokers[node].pid if node in self._brokers else None

    def running(self, node: int) -> bool:
        """Returns whether the node's process is alive."""
        return node in self._brokers and self._brokers[node].running

    def start(self, nodes: Sequence[int]) -> None:
        """Starts those of the nodes that don't run, and waits until they answer."""
        starting = [node for node in nodes if not self.running(node)]
        if not starting:
            return
        installation = locate(
            java=self._options.java,
            kafka_home=self._options.kafka_home,
            on_progress=self._options.on_progress,
        )
        self._open_guard()
        fresh = not any(self.running(node) for node in self._folders)
        # A port may be exchanged for another only if the user didn't ask for it and no client knows it yet.
        known = self._known_ports()
        for spare in range(SPARE_PORTS, -1, -1):
            try:
                self._start_once(installation, starting, fresh)
                break
            except PortInUse as error:
                if not fresh or error.port in known or not spare:
                    raise

    def wait_ready(self, nodes: Sequence[int], timeout: float | None = None) -> None:
        """Waits until the nodes answer; raises an error with the cause if one of them dies."""
        limit = self._options.ready_timeout if timeout is None else timeout
        for node in nodes:
            wait_until_ready(
                self._brokers[node].files, self._settings[node], lambda: self._checked_dead(nodes), limit
            )

    def end(
        self, how: signal.Signals, nodes: Sequence[int] | None = None, patience_s: float = STOP_TIMEOUT_S
    ) -> None:
        """Ends the nodes' processes (by default all of them), and waits until they have ended."""
        brokers = [
            self._brokers[node]
            for node in (self._folders if nodes is None else nodes)
            if node in self._brokers
        ]
        for broker in brokers:
            broker.send(how)
            # A paused process gets no other signal than KILL before it goes on.
            broker.send(signal.SIGCONT)
        deadline = time.monotonic() + patience_s
        for broker in brokers:
            broker.wait_end(deadline)
        if not self._temporary and not any(self.running(node) for node in self._folders):
            self._release_guard()

    def send(self, how: signal.Signals, node: int) -> None:
        """Sends a signal to the node's process."""
        self._brokers[node].send(how)

    def close(self) -> None:
        """Stops all nodes for good, and deletes temporary data."""
        # Temporary data isn't read again, so there is no need to flush it.
        how = signal.SIGKILL if self._temporary else signal.SIGTERM
        self.end(how, patience_s=STOP_TIMEOUT_S if len(self._folders) == 1 else STOP_ALL_TIMEOUT_S)
        if self._temporary and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
            self._settings = {}
        self._release_guard()

    def _start_once(self, installation: Installation, starting: Sequence[int], fresh: bool) -> None:
        before = self._settings
        settings = self._choose_settings() if fresh else before
        for node in starting:
            if fresh and node in before and not is_free(settings[node].port):
                raise PortInUse(settings[node].port)
        try:
            self._settings = settings
            self._launch(installation, starting)
            self.wait_ready(starting)
        except BaseException:
            self.end(signal.SIGKILL, starting)
            self._settings = before
            raise

    def _launch(self, installation: Installation, starting: Sequence[int]) -> None:
        def launch_one(node: int) -> None:
            self._brokers[node].launch(
                installation, self._settings[node], self._options.heap_mb, self._options.on_progress
            )

        # Formatting a new directory takes a second of Java, so side by side.
        with ThreadPoolExecutor(len(starting)) as pool:
            list(pool.map(launch_one, starting))

    def _choose_settings(self) -> dict[int, NodeSettings]:
        wanted = self._options.port
        if not self._settings and wanted is not None and not is_free(wanted):
            raise PortInUse(wanted)
        count, given = len(self._folders), self._options.detour_ports
        ports = iter(free_ports((3 if given else 2) * count))
        identity = self._cluster_id() if count > 1 else ""
        chosen: dict[int, NodeSettings] = {}
        for index, node in enumerate(self._folders):
            kept = self._settings.get(node)
            fresh_port = next(ports)
            mine = NodeSettings(
                kept.port if kept else wanted or fresh_port,
                next(ports),
                node_id=node,
                replication=min(3, count),
                cluster_id=identity,
                session_timeout=self._options.session_timeout,
            )
            if given:
                detour = (next(ports), given[index])
                mine = replace(mine, detour=kept.detour if kept else detour)
            chosen[node] = mine
        voters = tuple((node, each.controller_port) for node, each in chosen.items())
        return {node: replace(each, voters=voters) for node, each in chosen.items()}

    def _cluster_id(self) -> str:
        known = (broker.files.cluster_id for broker in self._brokers.values())
        return next((identity for identity in known if identity), None) or new_cluster_id()

    def _known_ports(self) -> set[int]:
        known = {each.port for each in self._settings.values()}
        known |= {each.detour[0] for each in self._settings.values() if each.detour is not None}
        return known | ({self._options.port} if self._options.port is not None else set())

    def _checked_dead(self, nodes: Sequence[int]) -> bool:
        # The error names the node that died, not a node that waits for it.
        for node in nodes:
            if not self.running(node):
                raise explain_death(self._brokers[node].files, self._settings[node].port)
        return False

    def _open_guard(self) -> None:
        if self._guard is not None:
            return
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="kafka-pubsub-"))
        self._guard = Guard(self._root if self._temporary else None)
        self._brokers = {
            node: TiedBroker(NodeFiles(self._root / folder), self._guard)
            for node, folder in self._folders.items()
        }

    def _release_guard(self) -> None:
        if self._guard is not None:
            self._guard.release()
        self._guard = None


class FleetOwner(ABC):
    """The base of `LocalKafka` and `LocalCluster`: brokers from `start()` to `close()`, or for a `with` block."""

    _fleet: Fleet

    @abstractmethod
    def start(self) -> None:
        """Starts the brokers that don't run, and waits until they answer."""

    def close(self) -> None:
        """Stops the brokers for good, and deletes temporary data."""
        self._fleet.close()

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


def require_root(root: Path | None) -> Path:
    """Returns the directory of a fleet that was started."""
    if root is None:
        raise LocalKafkaError("This Kafka wasn't started yet, so it has no directory.")
    return root
