"""The commands in the `console` blocks of the pages work, typed one after the other on a cluster of their own.

Rules
1. A command runs as the page has it. Only ids that no reader can have are replaced by one of the test's.
2. A command that goes on until Ctrl-C gets SIGTERM, once it has said something.
3. The test makes before what the page takes for granted: the topics and messages of its program, and as `shop.py`
   the program of README.md.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_pubsub import DeadLetterPolicy, PubSub
from kafka_pubsub.local import LocalKafka
from tests.benchmarks.cluster import create_plainly
from tests.unit.house.repository import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDLESS = re.compile(r"kafka-pubsub (service|run|worker)|--follow|--http")
#: Ids of messages that nobody has, as the pages show them.
SHOWN_IDS = re.compile(r"_kafka_pubsub\.delay\.in:0:17|9f1c22ab34d05e67-18\.0")


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A cluster for each page, without services: the pages start them."""
    with LocalKafka() as kafka:
        yield kafka.bootstrap


def commands(page: str) -> list[str]:
    blocks = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [
        line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]


def run(command: str, bootstrap: str, folder: Path) -> str:
    """Runs a command as in a shell; returns what it said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap}
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            stdout=said,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
        )
        try:
            expected = {0}
            if ENDLESS.search(command):
                _wait_for_words(said.name, process)
                process.send_signal(signal.SIGTERM)
                expected = {0, 143}
            code = process.wait(timeout=60)
        finally:
            process.kill()
        said.seek(0)
        text = said.read()
    assert code in expected, f"{command}\nended with {code}:\n{text}"
    return text


def _wait_for_words(file: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not Path(file).stat().st_size and process.poll() is None:
        assert time.monotonic() < deadline, "it said nothing for a minute"
        time.sleep(0.05)


def prepare_orders(ps: PubSub) -> str:
    """Makes the topic and the subscription of most pages, with a message."""
    ps.create_topic("orders")
    ps.create_topic("orders-dead")
    ps.create_subscription("billing", topic="orders", dead_letter=DeadLetterPolicy(topic="orders-dead"))
    return ps.topic("orders").publish(b"hello").result(timeout=30)


def prepare_delays(ps: PubSub) -> str:
    """Adds a message that is due tomorrow, and returns its id."""
    prepare_orders(ps)
    return ps.topic("orders").publish(b"later", delay=86_400).result(timeout=60)


def prepare_topic(ps: PubSub) -> str:
    ps.create_topic("orders")
    return ""


def prepare_nothing(_ps: PubSub) -> str:
    return ""


def prepare_multicast(ps: PubSub) -> str:
    ps.create_topic("orders", causal=True)
    return ""


PAGES: dict[str, Callable[[PubSub], str]] = {
    "docs/connecting.md": prepare_nothing,
    "docs/redelivery.md": prepare_orders,
    "docs/delays.md": prepare_delays,
    "docs/lanes.md": prepare_nothing,
    "docs/multicast.md": prepare_multicast,
    "docs/existing-topic.md": prepare_nothing,
    "docs/metrics.md": prepare_orders,
    "docs/handlers.md": prepare_nothing,
    "docs/operations.md": prepare_orders,
    "docs/worker.md": prepare_orders,
    "docs/redelivery-operations.md": prepare_topic,
}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, bootstrap: str, tmp_path: Path) -> None:
    if page == "docs/existing-topic.md":
        create_plainly(bootstrap, "orders")
    with PubSub(bootstrap) as ps:
        own_id = PAGES[page](ps)
    handler, *_ = PROGRAM.findall((ROOT / "README.md").read_text("utf-8"))
    (tmp_path / "shop.py").write_text(handler, "utf-8")
    # Of a page the first file is run; tests/unit/worker/test_settings_rest.py reads the others.
    for text in FILE.findall((ROOT / page).read_text("utf-8"))[:1]:
        (tmp_path / "worker.toml").write_text(text, "utf-8")
    typed = commands(page)
    assert typed
    for command in typed:
        run(SHOWN_IDS.sub(own_id, command) if own_id else command, bootstrap, tmp_path)


def test_every_page_with_commands_is_run() -> None:
    pages = [
        f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md") if BLOCK.search(path.read_text("utf-8"))
    ]
    assert sorted(pages) == sorted(PAGES)
