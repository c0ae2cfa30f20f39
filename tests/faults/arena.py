"""Where a round happens: a broker that is there, or a cluster of three with a proxy in front of each node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.proxy import Proxy
from tests.local_cluster import LocalCluster

__all__ = ["Arena", "clustered"]

#: Seconds for a broker to answer after its start: on two cores the others and all clients take their share meanwhile.
READY = 300.0


@dataclass(frozen=True)
class Arena:
    """`bootstrap` leads straight to the brokers: what the driver asks is answered in every weather."""

    bootstrap: str
    cluster: LocalCluster | None = None
    #: By node.
    proxies: tuple[Proxy, ...] = ()

    @property
    def detour(self) -> str:
        """The way through the proxies, for clients whose faults are theirs."""
        return self.bootstrap if self.cluster is None else self.cluster.detour_bootstrap


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
        yield Arena(cluster.bootstrap, cluster, proxies)
