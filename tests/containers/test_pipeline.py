"""A stock Kafka Connect writes to our topics and reads them, and a Spark cluster archives meanwhile; an audit is clean.

Kafka Connect runs in a container, with the settings of `deploy/connect`. Spark's master, workers and drivers run on
this machine, and read from the containers' brokers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local import paths
from kafka_pubsub.local.artifacts import ensure_jars, parse_lock
from tests.containers.cluster import ContainerCluster
from tests.containers.engine import ROOT, OwnNetwork
from tests.contract.connect.steps import Answer
from tests.contract.connect.stock import LOCK, LOG, PATIENCE, SETTINGS, asked_again, asking, read
from tests.contract.connect.test_stock import meet
from tests.spark.needs import need_spark
from tests.support import until

#: Of the container in its network, and the port of its REST interface.
NUMBER: Final = 25
PORT: Final = 8083
#: Lines of files, and messages of ours.
SENT: Final = 240


class Connect:
    """A worker of Kafka Connect, by its address."""

    def __init__(self, host: str) -> None:
        self._host = host

    def ask(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Asks its REST interface."""
        return asked_again(
            lambda: asking(PORT, method, path, content, headers, self._host), f"{method} {path}"
        )


@contextmanager
def stock_connect(image: str, network: OwnNetwork, bootstrap: str, folder: Path) -> Iterator[Connect]:
    """Kafka Connect in a container of the brokers' image, which has a Java; `folder` is the same one in there."""
    jars = ensure_jars(paths.cache(), print, parse_lock(LOCK.read_text()))
    settings = {
        **read(SETTINGS),
        "bootstrap.servers": bootstrap,
        "listeners": f"http://0.0.0.0:{PORT}",
        "rest.advertised.host.name": network.address(NUMBER),
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "plugin.path": "/connect/plugins",
    }
    own = folder / "connect"
    (own / "plugins").mkdir(parents=True)
    (own / "worker.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (own / "log4j2.properties").write_text(LOG)
    # The image's user isn't ours.
    folder.chmod(0o777)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=/connect/log4j2.properties"]
    main = ["-cp", "/jars/*", "org.apache.kafka.connect.cli.ConnectDistributed", "/connect/worker.properties"]
    container = (
        network.container(image, NUMBER)
        .with_volume_mapping(jars[0].parent, "/jars", "ro")
        .with_volume_mapping(own, "/connect", "ro")
        .with_volume_mapping(folder, str(folder), "rw")
        .with_command(["java", *options, *main])
    )
    with container:
        connect = Connect(network.address(NUMBER))

        def is_healthy() -> bool:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            assert wrapped.status == "running", wrapped.logs().decode()[-4000:]
            return connect.ask("GET", "/health", None, {}).status == 200

        until(is_healthy, "Kafka Connect is healthy", PATIENCE)
        yield connect


# Seconds: five JVMs of Spark start.
@pytest.mark.timeout(900)
def test_connect_writes_and_reads_while_spark_archives(
    brokers: ContainerCluster, network: OwnNetwork, kafka_image: str, tmp_path: Path
) -> None:
    need_spark()
    from tests.spark.drivers.scene import Driver, command, kept
    from tests.spark.standalone import standalone

    archive = tmp_path / "archive"
    with PubSub(brokers.bootstrap) as ps, standalone(tmp_path) as (master, _):
        ps.create_topic("orders", partitions=6)
        follow = ["--topic", "orders", "--to", str(archive), "--follow", "--every", "1 second"]
        driver = Driver(brokers.bootstrap, "archive", *follow, master=master, environment={})
        try:
            files = tmp_path / "files"
            files.mkdir()
            with stock_connect(kafka_image, network, brokers.bootstrap, files) as connect:
                meet(brokers.bootstrap, connect, files)
            driver.wait_until(lambda: kept(archive), 300)
        finally:
            driver.kill()

        def run(job: str, *arguments: str) -> Any:
            line = command(brokers.bootstrap, job, "--topic", "orders", *arguments, master=master)
            ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
            return json.loads(ran.stdout.splitlines()[-1])

        # What the driver had written and not noted as done isn't written again.
        run("archive", "--to", str(archive))
        facts = run("audit", "--archive", str(archive))
    assert facts["findings"] == []
    assert facts["messages"] == kept(archive).total() == SENT
    assert facts["archive"]["behind"] == {}
