"""The Docker engine of these tests, the images that they run, and a label by which leftovers are found.

Rules
1. `KAFKA_PUBSUB_IMAGE`, `KAFKA_PUBSUB_KAFKA_IMAGE` and `KAFKA_PUBSUB_PROMETHEUS_IMAGE` name images that are taken as
   they are; else each is built from this repository, on `KAFKA_PUBSUB_BASE_IMAGE`.
2. Containers are removed by their tests. The reaper of testcontainers isn't used: its image can't be had everywhere.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Testcontainers reads the variable when it is imported.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

import docker
from docker.errors import APIError, BuildError
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import EndpointConfig, IPAMConfig, IPAMPool
from testcontainers.core.container import DockerContainer
from testcontainers.core.labels import SESSION_ID
from testcontainers.core.network import Network as TestNetwork

__all__ = ["LABELS", "NO_ENGINE", "PROJECT", "Engine", "OwnNetwork", "own_network"]

ROOT: Final = Path(__file__).parents[2]
#: What these tests make has the labels, or is of compose's project: so `.ci/run` knows it from what others make.
RUN: Final = os.environ.get("KAFKA_PUBSUB_CI_RUN", SESSION_ID[:8])
LABELS: Final = {"kafka-pubsub.run": RUN}
PROJECT: Final = f"kafka-pubsub-{RUN}"
BASE: Final = "KAFKA_PUBSUB_BASE_IMAGE"
#: Where a base image is built by `.ci/engine`, tests find it without a variable.
OWN_BASE: Final = "kafka-pubsub/base:system"
PUBLIC_BASE: Final = "python:3.12-slim"
NO_ENGINE: Final = (
    "no Docker engine answers: start Docker; on Debian `sudo .ci/engine` gets it and a base image"
)


class Engine:
    """The engine that the environment names, as for Docker's own command."""

    def __init__(self) -> None:
        self.client = docker.from_env(timeout=120)
        self.client.ping()

    @property
    def base(self) -> str:
        """The image with Python that others are built on."""
        if named := os.environ.get(BASE):
            return named
        return OWN_BASE if self.client.images.list(OWN_BASE) else PUBLIC_BASE

    def own_image(self) -> str:
        """Returns the name of our own image."""
        named = os.environ.get("KAFKA_PUBSUB_IMAGE")
        return named or self.build("kafka-pubsub", ROOT, "deploy/images/Dockerfile")

    def kafka_image(self) -> str:
        """Returns the name of the image of brokers."""
        if named := os.environ.get("KAFKA_PUBSUB_KAFKA_IMAGE"):
            return named
        with tempfile.TemporaryDirectory() as folder:
            fill = [sys.executable, str(ROOT / "deploy" / "images" / "kafka" / "context.py"), folder]
            subprocess.run(fill, check=True)
            return self.build("kafka-pubsub-kafka", Path(folder))

    def build(self, name: str, folder: Path, dockerfile: str = "Dockerfile") -> str:
        """Builds an image, and returns its name; what the builder said last is in the error."""
        tag = f"{name}:{SESSION_ID[:8]}"
        try:
            self.client.images.build(
                path=str(folder),
                dockerfile=dockerfile,
                buildargs={"BASE": self.base},
                tag=tag,
                rm=True,
                forcerm=True,
            )
        except BuildError as error:
            said = "".join(line.get("stream", "") for line in error.build_log)
            raise AssertionError(f"{dockerfile} doesn't build:\n{said[-4000:]}\n{error}") from error
        return tag

    def left(self) -> Iterator[str]:
        """What this run's tests have made and not removed."""
        for label in (f"kafka-pubsub.run={RUN}", f"com.docker.compose.project={PROJECT}"):
            ours = {"label": label}
            containers = self.client.containers.list(all=True, filters=ours)
            yield from (f"container {each.name}" for each in containers)
            yield from (f"network {each.name}" for each in self.client.networks.list(filters=ours))
            yield from (f"volume {each.name}" for each in self.client.volumes.list(filters=ours))

    def forget_images(self) -> None:
        """Removes the names of the images that were built; the layers stay in the builder's cache."""
        for image in self.client.images.list():
            for tag in image.tags:
                if tag.endswith(f":{SESSION_ID[:8]}"):
                    self.client.images.remove(tag, force=True, noprune=True)

    def close(self) -> None:
        """Ends the conversation."""
        self.client.close()


class OwnNetwork:
    """A network of these tests, in which a container has the same address for the host and for other containers.

    So a broker advertises a single address, and keeps it when it is cut off and comes back.
    """

    def __init__(self, network: TestNetwork, prefix: str) -> None:
        self.of_tests, self._prefix = network, prefix
        found: Network = network._unwrap_network
        self._network = found

    @property
    def gateway(self) -> str:
        """The address under which containers reach the host."""
        return f"{self._prefix}.1"

    def address(self, number: int) -> str:
        """The network's address with that number, from 2 to 127; Docker gives the others."""
        return f"{self._prefix}.{number}"

    def container(self, image: str, number: int | None = None, **options: object) -> DockerContainer:
        """A container that isn't started yet, with the address of that number; `options` are those of Docker's SDK."""
        if number is not None:
            endpoint = EndpointConfig("1.41", ipv4_address=self.address(number))
            options["networking_config"] = {self.of_tests.name: endpoint}
        return DockerContainer(image).with_network(self.of_tests).with_kwargs(labels=LABELS, **options)

    def cut(self, container: Container) -> None:
        """Nothing reaches the container any more, and nothing tells those that wait for it."""
        self._network.disconnect(container)

    def heal(self, container: Container, number: int) -> None:
        """The container is back at its address."""
        self._network.connect(container, ipv4_address=self.address(number))


@contextmanager
def own_network() -> Iterator[OwnNetwork]:
    """A network in a range of addresses that no other network of this engine has."""
    numbers = random.sample(range(256), 20)
    while True:
        prefix = f"172.29.{numbers.pop()}"
        pool = IPAMPool(subnet=f"{prefix}.0/24", iprange=f"{prefix}.128/25", gateway=f"{prefix}.1")
        network = TestNetwork(docker_network_kw={"ipam": IPAMConfig(pool_configs=[pool]), "labels": LABELS})
        try:
            network.create()
            break
        except APIError:  # another network has these addresses
            if not numbers:
                raise
    try:
        yield OwnNetwork(network, prefix)
    finally:
        network.remove()
