"""A stock Kafka Connect for tests: its jars, locked, and its process, which ends with us."""

from __future__ import annotations

import http.client
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_pubsub.local import paths
from kafka_pubsub.local.artifacts import ensure_jars, parse_lock
from kafka_pubsub.local.installation import Installation
from kafka_pubsub.local.java import find_java
from kafka_pubsub.local.orphan_guard import Guard
from kafka_pubsub.local.tcp_ports import free_ports
from tests.contract.connect.steps import Answer
from tests.support import until

__all__ = [
    "CONVERTER",
    "LOCK",
    "LOG",
    "PATIENCE",
    "SETTINGS",
    "StockConnect",
    "asked_again",
    "asking",
    "read",
]

LOCK = Path(__file__).parent / "connect.lock.json"
#: Apicurio's Avro converter, which a stock Kafka Connect doesn't have; Confluent's isn't in Maven's repository.
CONVERTER_LOCK = Path(__file__).parent / "converter.lock.json"
CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
SETTINGS = Path(__file__).parents[3] / "deploy" / "connect" / "worker.properties"
LOG = """
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = warn
"""
#: Seconds for the start, the jars' download not included.
PATIENCE = 120.0


def asking(
    port: int,
    method: str,
    path: str,
    content: bytes | None,
    headers: Mapping[str, str],
    host: str = "127.0.0.1",
) -> Answer:
    """Asks a server, on this machine or another, byte for byte; `Answer(0, None)`: no server answers."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, content, dict(headers))
        answer = connection.getresponse()
        return Answer.of(answer.status, answer.read().decode(), dict(answer.getheaders()))
    except OSError:
        return Answer(0, None)
    finally:
        connection.close()


def asked_again(ask: Callable[[], Answer], request: str) -> Answer:
    """Returns the answer of a Kafka Connect that isn't in a rebalance."""
    answer = Answer(0, None)

    def is_answered() -> bool:
        nonlocal answer
        answer = ask()
        return answer.status != 409 or "Cannot complete request" not in answer.value["message"]

    until(is_answered, f"{request} without a rebalance", PATIENCE)
    return answer


class StockConnect:
    """A worker in distributed mode, with the settings of `deploy/connect`, inside a `with` block."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._settings = {
            **read(SETTINGS),
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{self.port}",
            "config.storage.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            # Milliseconds: steps wait for positions, and nothing waits for workers that may come back.
            "offset.flush.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "plugin.path": str(folder / "plugins"),
        }

    def __enter__(self) -> Self:
        jars = ensure_jars(paths.cache(), print, parse_lock(LOCK.read_text()))
        _add_converter(self._folder / "plugins" / "avro")
        properties, log_settings = self._folder / "worker.properties", self._folder / "log4j2.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        log_settings.write_text(LOG)
        jvm = ["-Xmx256m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={log_settings.as_uri()}"]
        command = Installation(find_java(), tuple(jars)).command(
            "org.apache.kafka.connect.cli.ConnectDistributed", jvm, [str(properties)]
        )
        self._guard = Guard()
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._guard.watch(self._process.pid)
        try:
            until(self._is_healthy, "Kafka Connect is healthy", PATIENCE)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Asks its REST interface, again while it is in a rebalance, which it tells by 409."""
        return asked_again(lambda: asking(self.port, method, path, content, headers), f"{method} {path}")

    def close(self) -> None:
        """Ends the process."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._guard.spare(self._process.pid)
        self._guard.release()

    def _is_healthy(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()[-4000:]
        return self.ask("GET", "/health", None, {}).status == 200


def _add_converter(plugin: Path) -> None:
    """Makes the plugin with the Avro converter."""
    plugin.mkdir(parents=True)
    for jar in ensure_jars(paths.cache(), print, parse_lock(CONVERTER_LOCK.read_text())):
        (plugin / jar.name).symlink_to(jar)
    # Its jar doesn't say that it has a converter, which `plugin.discovery=service_load` needs.
    with zipfile.ZipFile(plugin / "services.jar", "w") as services:
        services.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", f"{CONVERTER}\n")


def read(file: Path) -> dict[str, str]:
    """Returns the settings of a properties file."""
    lines = (line.strip() for line in file.read_text().splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
