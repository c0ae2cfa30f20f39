"""An engine, the images, and three brokers for all container suites of a run; nothing of theirs may be left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import pytest
from docker.errors import DockerException

from tests.containers.cluster import ContainerCluster, kafka_cluster
from tests.containers.engine import NO_ENGINE, Engine, OwnNetwork, own_network


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine; without one tests are skipped, where `CI` is set they fail."""
    if sys.platform != "linux":
        pytest.skip("these tests reach containers by their addresses, which other systems than Linux hide")
    try:
        engine = Engine()
    except DockerException as error:
        missing = f"{NO_ENGINE} ({error})"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    yield engine
    left = list(engine.left())
    engine.forget_images()
    engine.close()
    assert left == [], "the tests left something behind"


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tells a figure that was measured: CI's summary shows it, and so does `pytest -rP`."""

    def tell(text: str) -> None:
        print(text)
        request.node.user_properties.append(("figure", text))

    return tell


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """Our own image."""
    return engine.own_image()


@pytest.fixture(scope="session")
def kafka_image(engine: Engine) -> str:
    """The image of brokers."""
    return engine.kafka_image()


@pytest.fixture(scope="session")
def network(engine: Engine) -> Iterator[OwnNetwork]:
    with own_network() as network:
        yield network


@pytest.fixture(scope="session")
def cluster(kafka_image: str, network: OwnNetwork) -> Iterator[ContainerCluster]:
    """Three brokers, of which two have to have each message."""
    with kafka_cluster(kafka_image, network) as cluster:
        yield cluster


@pytest.fixture
def brokers(cluster: ContainerCluster) -> Iterator[ContainerCluster]:
    """The same, without a topic, and all of them there."""
    yield cluster
    cluster.wait_in_sync()
    cluster.forget()
