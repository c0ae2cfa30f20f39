"""Where a round happens: a broker that is there, or a cluster of three with a proxy in front of each node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.faults.proxy import Proxy
from tests.local_cluster import LocalCluster

__all__ = ["Arena", "clustered"]


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
def clustered(nodes: int = 3) -> Iterator[Arena]:
    """An arena of one's own."""
    with ExitStack() as stack:
        proxies = tuple(stack.enter_context(Proxy()) for _ in range(nodes))
        cluster = stack.enter_context(LocalCluster(nodes, detour_ports=[proxy.port for proxy in proxies]))
        for node, proxy in zip(cluster.nodes, proxies, strict=True):
            proxy.target = cluster.behind_detour(node)
        yield Arena(cluster.bootstrap, cluster, proxies)
