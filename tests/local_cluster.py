"""`LocalCluster`: a real Kafka of several brokers on this machine, whose nodes fall and rise on demand.

Theory: each node is broker and controller, all of them vote; with three, one may be away and every acknowledged
message stays readable and writable (replication 3, two in sync). Kill, pause and order stop are different failures:
a stopped node hands its leaderships over, a killed one is missed after its session (3 s), a paused one keeps its
connections open and answers nothing.
Rules: "back" means in sync: every replica of every partition, in the eyes of every node. Everything dies with us
(`broker_set`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.local.broker_process import READY_TIMEOUT_S
from kafka_pubsub.local.broker_set import Fleet, FleetOptions, FleetOwner, require_root
from kafka_pubsub.local.errors import UNAVAILABLE, LocalKafkaError
from kafka_pubsub.local.node_config import LOOPBACK, NodeSettings
from kafka_pubsub.local.processes import wait_until_frozen
from kafka_pubsub.local.settings import checked_heap, checked_port
from tests.cluster_view import cluster_view, missing

__all__ = ["LocalCluster"]

# MB each: three fit where a single default heap does, and tests of failures carry little.
CLUSTER_HEAP_MB: Final = 256
# As many as a small machine bears; nobody learns more from ten.
MOST_NODES: Final = 9
# Seconds. A killed node is let in again after 3 s and then reads the records that it missed.
SYNC_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
#: Seconds for a signal to reach all threads of a node.
FREEZE_S: Final = 5.0


class LocalCluster(FleetOwner):
    """An Apache Kafka cluster on this machine, stopped when the `with` block ends or this process dies.

    >>> with LocalCluster(nodes=3) as cluster:
    ...     cluster.kill(2)          # nodes are numbered from 1
    ...     cluster.start(2)
    ...     cluster.wait_in_sync()

    Topics are replicated three times and take writes while two replicas are in sync (with one or two nodes: as often
    as there are nodes, and one), internal topics included. Without `data_dir` its data is temporary; with it there
    is a directory for each node below.

    `detour_ports`, a port for each node, opens a second way in for clients: who connects through it is told these
    ports instead of the brokers' own, so that something between (a proxy that tests failures) sees all their
    traffic. It listens there and forwards to `behind_detour(node)`; brokers among themselves don't take it.
    """

    def __init__(
        self,
        nodes: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        detour_ports: Sequence[int] = (),
        heap_mb: int = CLUSTER_HEAP_MB,
        ready_timeout: float = READY_TIMEOUT_S,
        java: str | os.PathLike[str] | None = None,
        kafka_home: str | os.PathLike[str] | None = None,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise InvalidArgument(f"nodes is {nodes}; it must be from 1 to {MOST_NODES}.")
        if detour_ports and len(detour_ports) != nodes:
            raise InvalidArgument(f"detour_ports has {len(detour_ports)} ports; {nodes} nodes need {nodes}.")
        options = FleetOptions(
            heap_mb=checked_heap(heap_mb),
            ready_timeout=ready_timeout,
            detour_ports=tuple(checked_port(port) for port in detour_ports),
            java=java,
            kafka_home=kafka_home,
            on_progress=on_progress,
        )
        self._nodes = tuple(range(1, nodes + 1))
        self._fleet = Fleet(data_dir, {node: f"node-{node}" for node in self._nodes}, options)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the nodes, from 1."""
        return self._nodes

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(each.bootstrap for each in self._started().values())

    @property
    def detour_bootstrap(self) -> str:
        """The addresses of the detour: who begins there is sent through the detour for ever."""
        return ",".join(f"{LOOPBACK}:{self._detour(node)[1]}" for node in self._nodes)

    def behind_detour(self, node: int) -> int:
        """The port that whoever listens on the node's detour port has to forward to."""
        return self._detour(self._known(node))[0]

    @property
    def data_dir(self) -> Path:
        """Where the files are: `node-1/broker.log` is the first node's log."""
        return require_root(self._fleet.root)

    def pid(self, node: int) -> int | None:
        """The process id of the node while it runs."""
        return self._fleet.pid(self._known(node))

    def running(self, node: int) -> bool:
        """Whether the node's process is alive; a paused process is."""
        return self._fleet.running(self._known(node))

    def start(self, *nodes: int) -> None:
        """Start these nodes, or all, and wait until they answer; nodes that run already are left alone."""
        wanted = [self._known(node) for node in nodes] or list(self._nodes)
        alive = sum(self.running(node) or node in wanted for node in self._nodes)
        if alive <= len(self._nodes) // 2:
            raise LocalKafkaError(
                f"With {alive} of {len(self._nodes)} nodes there is no majority, so none of them would answer: "
                "start more of them at once, start() starts all."
            )
        if self._fleet.root is not None:
            self._check_layout(self._fleet.root)
        self._fleet.start(wanted)

    def stop(self, node: int) -> None:
        """Stop the node in order (SIGTERM); its data stays, and `start(node)` brings it back on the same port."""
        self._fleet.end(signal.SIGTERM, [self._running(node)])

    def kill(self, node: int) -> None:
        """End the node at once, as a crash would (SIGKILL); `start(node)` brings it back on the same port."""
        self._fleet.end(signal.SIGKILL, [self._running(node)])

    def pause(self, node: int) -> None:
        """Freeze the node (SIGSTOP): connections stay open, nothing is answered."""
        self._fleet.send(signal.SIGSTOP, self._running(node))
        if (pid := self.pid(node)) is not None:
            wait_until_frozen(pid, FREEZE_S)

    def cont(self, node: int) -> None:
        """Let a paused node go on (SIGCONT)."""
        self._fleet.send(signal.SIGCONT, self._running(node))

    def rolling_restart(self, timeout: float = SYNC_TIMEOUT_S) -> None:
        """Stop and start the nodes in turn, each once all are in sync, as operators do."""
        for node in self._nodes:
            self.wait_in_sync(timeout)
            self.stop(node)
            self.start(node)
        self.wait_in_sync(timeout)

    def wait_in_sync(self, timeout: float = SYNC_TIMEOUT_S) -> None:
        """Wait until every replica of every partition is in sync, in the eyes of every node."""
        for node in self._nodes:
            self._running(node)
        deadline = time.monotonic() + timeout
        while (lacking := next(self._missing(), None)) is not None:
            if time.monotonic() > deadline:
                raise LocalKafkaError(
                    f"The cluster isn't in sync after {timeout:.0f} s: {lacking}. The nodes' logs are "
                    f"{self.data_dir}/node-*/broker.log; on a slow machine wait longer (timeout=).",
                    code=UNAVAILABLE,
                )
            time.sleep(POLL_S)

    def _missing(self) -> Iterator[str]:
        """The faults of each node, lazily: the first is enough to go on waiting."""
        views = ((node, cluster_view(each.port)) for node, each in self._started().items())
        return missing(views, self._nodes)

    def _check_layout(self, root: Path) -> None:
        found = sorted(path.name for path in root.glob("node-*"))
        ours = [f"node-{node}" for node in self._nodes]
        if found and found != ours:
            raise LocalKafkaError(
                f"{root} holds a cluster of {len(found)} nodes, and {len(ours)} were asked for. Start it with "
                f"nodes={len(found)}, or choose another data_dir."
            )

    def _started(self) -> dict[int, NodeSettings]:
        if not self._fleet.settings:
            raise LocalKafkaError(
                "This cluster wasn't started yet: use it in a `with` block, or call start()."
            )
        return dict(self._fleet.settings)

    def _detour(self, node: int) -> tuple[int, int]:
        detour = self._started()[node].detour
        if detour is None:
            raise LocalKafkaError("This cluster has no detour: give it detour_ports=, one for each node.")
        return detour

    def _known(self, node: int) -> int:
        if node not in self._nodes:
            raise InvalidArgument(f"node is {node!r}; there are the nodes 1 to {len(self._nodes)}.")
        return node

    def _running(self, node: int) -> int:
        if not self.running(node):
            raise LocalKafkaError(f"Node {node} isn't running: start({node}) starts it.")
        return node
