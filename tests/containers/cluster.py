"""Three brokers in containers of one network, which Docker pauses, kills and cuts off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from confluent_kafka.admin import AdminClient
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer

from kafka_pubsub.local.node_config import NodeSettings, server_properties
from tests.cluster_view import ClusterView, cluster_view, missing
from tests.containers.engine import OwnNetwork
from tests.support import until

__all__ = ["PORT", "ContainerCluster", "environment", "kafka_cluster"]

PORT: Final = 9092
CONTROLLER: Final = 9093
NODES: Final = (1, 2, 3)
#: Addresses of brokers in their network begin here.
FIRST: Final = 10
#: Seconds for a broker to start, or to catch up, beside other work.
PATIENCE: Final = 180.0
#: Settings of local brokers that are said otherwise for containers, or that the image says.
ELSEWHERE: Final = ("listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs")


def environment(
    address: str, node: int, voters: Mapping[int, str], more: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """A broker's settings as its image takes them: those of our local brokers, at this address."""
    replication = min(3, len(voters))
    local = NodeSettings(PORT, CONTROLLER, node, replication=replication)
    lines = (line.partition("=") for line in server_properties(local, Path("unused")).splitlines())
    settings = {name: value for name, _, value in lines if name not in ELSEWHERE} | {
        "listeners": f"CLIENT://:{PORT},CONTROLLER://:{CONTROLLER}",
        "advertised.listeners": f"CLIENT://{address}:{PORT}",
        "controller.quorum.voters": ",".join(f"{each}@{at}:{CONTROLLER}" for each, at in voters.items()),
    }
    return {variable(name): value for name, value in {**settings, **more}.items()} | {
        "KAFKA_HEAP_OPTS": "-Xmx320m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
    }


def variable(name: str) -> str:
    """The variable of a setting, as Kafka's own image has it."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class ContainerCluster:
    """The brokers, by their number."""

    def __init__(self, network: OwnNetwork, started: Mapping[int, DockerContainer]) -> None:
        self.network, self._started = network, started
        self.nodes = tuple(started)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for the host and for containers."""
        return ",".join(f"{self._address(node)}:{PORT}" for node in self.nodes)

    def start(self, *nodes: int) -> None:
        """Start these nodes, and wait until they answer."""
        for node in nodes:
            self._container(node).start()
        until(lambda: all(self._answers(node) for node in nodes), f"nodes {nodes} answer", PATIENCE)

    def stop(self, node: int) -> None:
        """Stop the node in order."""
        self._container(node).stop(timeout=60)

    def kill(self, node: int) -> None:
        """End the node at once."""
        container = self._container(node)
        container.kill()
        # The answer comes before the end, and until then a start does nothing.
        container.wait(timeout=60)

    def rolling_restart(self) -> None:
        """Stop and start the nodes in turn."""
        for node in self.nodes:
            self.wait_in_sync()
            self.stop(node)
            self.start(node)
        self.wait_in_sync()

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """The node is frozen: connections stay open, nothing is answered."""
        self._container(node).pause()
        try:
            yield
        finally:
            self._container(node).unpause()

    @contextmanager
    def cut(self, node: int) -> Iterator[None]:
        """The node has no network: what is sent to it is lost without an answer."""
        self.network.cut(self._container(node))
        try:
            yield
        finally:
            self.network.heal(self._container(node), FIRST + node)

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync, in the eyes of every node."""
        until(lambda: next(self._missing(), None) is None, "replicas in sync", PATIENCE)

    def forget(self) -> None:
        """All topics are gone, those of the library included: the next test finds the cluster as a new one."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})

        def names() -> list[str]:
            return [name for name in admin.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]

        if found := names():
            for done in admin.delete_topics(found).values():
                done.result(PATIENCE)
        until(lambda: not names(), "no topics are left", PATIENCE)

    def logs(self, node: int) -> str:
        """What the node has said."""
        return str(self._container(node).logs().decode("utf-8", "replace"))

    def _answers(self, node: int) -> bool:
        container = self._container(node)
        container.reload()
        assert container.status == "running", f"node {node} has ended:\n{self.logs(node)[-4000:]}"
        return self._view(node) is not None

    def _missing(self) -> Iterator[str]:
        return missing(((node, self._view(node)) for node in self.nodes), self.nodes)

    def _view(self, node: int) -> ClusterView | None:
        return cluster_view(PORT, host=self._address(node))

    def _address(self, node: int) -> str:
        return self.network.address(FIRST + node)

    def _container(self, node: int) -> Container:
        return self._started[node].get_wrapped_container()


@contextmanager
def kafka_cluster(image: str, network: OwnNetwork) -> Iterator[ContainerCluster]:
    """The cluster, from its start until its containers are removed."""
    voters = {node: network.address(FIRST + node) for node in NODES}
    with ExitStack() as stack:
        started = {}
        for node, address in voters.items():
            container = network.container(image, FIRST + node).with_envs(**environment(address, node, voters))
            started[node] = stack.enter_context(container)
        cluster = ContainerCluster(network, started)
        cluster.wait_in_sync()
        yield cluster
