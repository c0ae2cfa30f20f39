"""Workers as processes on one broker: they share work, take over from the dead, follow their file, and drain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.tcp_ports import free_ports
from tests.support import until

PATIENCE = 90.0
SHOP = """
import os
from kafka_pubsub import App, Message
app = App()
@app.subscriber("billing", topic="orders", message_ordering=True, start="earliest")
def charge(message: Message) -> None:
    with open(f"handled-{os.getpid()}", "a") as file:
        file.write(f"{message.ordering_key} {message.data.decode()}\\n")
"""
FILE = """
[apps]
shop = "shop:app"
missing = "missing:app"

[services]
router = { tiers = 4, partitions = 2 }
sequencer = true
"""


class Workers:
    """Worker processes of a folder."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.file, self._folder = folder / "worker.toml", folder
        (folder / "shop.py").write_text(SHOP)
        self.file.write_text(FILE)
        self._environment = {**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap}

    def start(self, stack: ExitStack) -> Process:
        (port,) = free_ports(1)
        log = self._folder / f"log-{port}"
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_pubsub", "worker", "--config", self.file.name, "--http", str(port)],
            cwd=self._folder,
            env=self._environment,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        return Process(process, port, log)

    def handled(self) -> list[str]:
        return [line for file in self._folder.glob("handled-*") for line in file.read_text().splitlines()]

    def handled_by(self, process: Process) -> list[str]:
        file = self._folder / f"handled-{process.process.pid}"
        return file.read_text().splitlines() if file.exists() else []


class Process:
    """A worker."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self._port, self._log = process, port, log

    def units(self) -> dict[str, dict[str, object]]:
        assert self.process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=10) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read()
        except OSError:
            return {}
        found: dict[str, dict[str, object]] = json.loads(text)["units"]
        return found

    def runs(self, *names: str) -> bool:
        units = self.units()
        return all(units.get(name, {}).get("state") == "RUNNING" for name in names)

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 128 + signal.SIGTERM
        return self._log.read_text()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _publish(ps: PubSub, first: int, last: int) -> None:
    topic = ps.topic("orders")
    futures = [topic.publish(b"%d" % each, ordering_key=f"key-{each % 20}") for each in range(first, last)]
    for future in futures:
        future.result(timeout=60)


def test_workers_share_take_over_follow_their_file_and_drain(tmp_path: Path, stack: ExitStack) -> None:
    kafka = stack.enter_context(LocalKafka())
    ps = stack.enter_context(PubSub(kafka.bootstrap))
    ps.create_topic("orders", partitions=6, message_ordering=True)
    workers = Workers(kafka.bootstrap, tmp_path)
    one = workers.start(stack)
    until(lambda: one.runs("shop", "router", "sequencer"), "the first worker runs", PATIENCE)
    two = workers.start(stack)
    until(lambda: two.runs("shop", "router", "sequencer"), "the second worker runs", PATIENCE)

    missing = one.units()["missing"]
    assert missing["state"] in ("FAILED", "RESTARTING")
    assert "there is no module 'missing'" in str(missing["error"])
    assert "InvalidArgument" in str(missing["trace"])

    _publish(ps, 0, 400)
    ps.topic("orders").publish(b"400", ordering_key="key-0", delay=2).result(timeout=60)
    until(lambda: len(set(workers.handled())) == 401, "all are handled, the delayed one too", PATIENCE)
    assert workers.handled_by(one)
    assert workers.handled_by(two)

    one.process.kill()
    one.process.wait()
    _publish(ps, 401, 800)
    until(lambda: len(set(workers.handled())) == 800, "the other one takes over", PATIENCE)

    workers.file.write_text('[apps]\nshop = "shop:app"\n')
    two.process.send_signal(signal.SIGHUP)
    until(lambda: two.units().keys() == {"shop"} and two.runs("shop"), "only the app is left", PATIENCE)
    workers.file.write_text("[app]\n")
    two.process.send_signal(signal.SIGHUP)
    said = two.end()
    assert "The worker has stopped" in said
    assert "didn't end in time" not in said
    for key in {line.split()[0] for line in workers.handled()}:
        numbers = [int(line.split()[1]) for line in workers.handled_by(two) if line.split()[0] == key]
        first = list(dict.fromkeys(each for each in numbers if each != 400))
        assert first == sorted(first), f"{key} out of order"
