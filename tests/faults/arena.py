"""Where a round happens: a broker that is there, or a cluster of three with a proxy in front of each node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.faults.proxy import Proxy
from tests.local_cluster import LocalCluster

__all__ = ["Arena", "Brokers", "clustered"]

#: Seconds for a broker to answer after its start: on two cores the others and all clients take their share meanwhile.
READY = 300.0


class Brokers(Protocol):
    """A cluster whose nodes can be taken away and brought back: processes here, or containers."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the nodes, from 1."""

    def start(self, *nodes: int) -> None:
        """Start these nodes, and wait until they answer."""

    def stop(self, node: int) -> None:
        """Stop the node in order."""

    def kill(self, node: int) -> None:
        """End the node at once, as a crash would."""

    def rolling_restart(self) -> None:
        """Stop and start the nodes in turn."""

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync, in the eyes of every node."""


@dataclass(frozen=True)
class Arena:
    """`bootstrap` leads straight to the brokers: what the driver asks is answered in every weather."""

    bootstrap: str
    cluster: Brokers | None = None
    #: By node.
    proxies: tuple[Proxy, ...] = ()
    #: The way through the proxies, for clients whose faults are theirs.
    detour: str = ""


@contextmanager
def clustered(nodes: int = 3, data_dir: Path | None = None) -> Iterator[Arena]:
    """An arena of its own; the brokers' data and logs stay in `data_dir`, if one is given."""
    with ExitStack() as stack:
        proxies = tuple(stack.enter_context(Proxy()) for _ in range(nodes))
        cluster = stack.enter_context(
            LocalCluster(nodes, data_dir, detour_ports=[proxy.port for proxy in proxies], ready_timeout=READY)
        )
        for node, proxy in zip(cluster.nodes, proxies, strict=True):
            proxy.target = cluster.behind_detour(node)
        yield Arena(cluster.bootstrap, cluster, proxies, cluster.detour_bootstrap)
