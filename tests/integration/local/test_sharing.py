"""A single broker for processes that don't know each other, and the pytest fixture on top of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_pubsub.local.tcp_ports import free_ports, is_free
from tests.page_suite import run_suite_of_page
from tests.support import until

USER = """
import sys
from pathlib import Path
from kafka_pubsub.local.shared_broker import shared_kafka
with shared_kafka(Path(sys.argv[1])) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


def user(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_lives_as_long_as_anybody_uses_it(tmp_path: Path) -> None:
    with user(tmp_path) as first, user(tmp_path) as second:
        address = address_of(first)
        assert address == address_of(second)
        port = int(address.split(":")[1])
        # Whoever came first may have started it; it must not take it away from the other.
        first.kill()
        first.wait()
        with user(tmp_path) as third:
            assert address_of(third) == address
            third.communicate()
        assert not is_free(port)
        second.communicate()
    deadline = time.monotonic() + 30
    while not is_free(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_free(port)


TEST = "def test_mine(local_kafka):\n    assert local_kafka.bootstrap.startswith('127.0.0.1:')\n"

SERVED = """
from pathlib import Path
from kafka_pubsub import PubSub

def test_what_needs_services(local_kafka):
    Path("address").write_text(local_kafka.bootstrap)
    with PubSub(local_kafka.bootstrap) as ps:
        topic = ps.create_topic("orders")
        ps.create_topic("stock", causal=True)
        sub = ps.create_subscription("billing", topic)
        topic.publish(b"later", delay=0.1).result(60)
        (message,) = sub.receive(1, timeout=60)
        message.ack()
        ps.publish_multi(["stock"], b"in order").result(60)
"""

ALONE = """
from kafka_pubsub import PubSub

def test_nothing_runs_beside_it(local_kafka):
    with PubSub(local_kafka.bootstrap) as ps:
        assert "_kafka_pubsub.delay.in" not in ps._cluster.backend.admin.topic_names()
        assert (ps.delays.routers(), ps.multicast.sequencers()) == (0, 0)
"""


def run_a_users_suite(folder: Path, test: str = TEST, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(test)
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KAFKA", "CI"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "."]
    environment = {**ours, "PYTHONPATH": str(Path(__file__).parents[3]), **settings}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_fixture_gives_a_broker(tmp_path: Path) -> None:
    done = run_a_users_suite(tmp_path)
    assert "1 passed" in done.stdout, done.stdout


def test_the_example_of_the_page_on_testing_passes(tmp_path: Path) -> None:
    done = run_suite_of_page(tmp_path, "-p", "no:xdist", "-k", "kafka")
    assert "1 passed, 5 deselected" in done.stdout, done.stdout


@pytest.mark.parametrize("options", ["-p no:xdist", "-n 2"])
def test_services_run_beside_the_fixtures_broker_and_end_with_it(tmp_path: Path, options: str) -> None:
    done = run_a_users_suite(tmp_path, SERVED, PYTEST_ADDOPTS=options)
    assert "1 passed" in done.stdout, done.stdout
    address = (tmp_path / "address").read_text().encode()
    until(lambda: not [each for each in command_lines() if address in each and b"service" in each])


def test_a_setting_keeps_the_services_away(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkafka_pubsub_services = false\n")
    done = run_a_users_suite(tmp_path, ALONE)
    assert "1 passed" in done.stdout, done.stdout


def command_lines() -> list[bytes]:
    """What runs on this machine; Linux only."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(each.read_bytes())
    return found


def test_the_fixture_takes_a_broker_that_runs_already(tmp_path: Path) -> None:
    done = run_a_users_suite(
        tmp_path, KAFKA_PUBSUB_TEST_BOOTSTRAP="127.0.0.1:1", KAFKA_PUBSUB_JAVA="/nowhere"
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_without_kafka_tests_are_skipped_but_a_build_fails(tmp_path: Path, ci: str, outcome: str) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    cache = str(tmp_path / "empty")
    done = run_a_users_suite(tmp_path, CI=ci, KAFKA_PUBSUB_CACHE=cache, KAFKA_PUBSUB_MAVEN_REPOSITORY=nowhere)
    assert outcome in done.stdout, done.stdout
    assert "which the embedded Kafka needs once" in done.stdout
