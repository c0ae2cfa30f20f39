"""`up`, `down` and `status` with a real broker that outlives the process that started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kafka_pubsub.local import LocalKafkaError, PortInUse, down, find_running, processes, state, status, up
from kafka_pubsub.local.paths import state_file
from kafka_pubsub.local.tcp_ports import free_ports, is_free
from tests.integration.local.records import append, contents, create_topic

UP = """
import json, sys
from kafka_pubsub.local import LocalKafkaError, up
try:
    print(json.dumps({"bootstrap": up(port=int(sys.argv[1])).bootstrap}))
except LocalKafkaError as error:
    print(json.dumps({"code": error.code, "message": error.message}))
"""


def start_elsewhere(port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", UP, str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, object]:
    with process:
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    data: dict[str, object] = json.loads(output)
    return data


def kill_broker() -> None:
    record = state.load(state_file())
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    processes.end(record.pid, record.identity, timeout_s=10)


def test_it_outlives_its_starter_is_found_and_keeps_its_data(home: Path) -> None:
    port = free_ports(1)[0]
    address = str(answer(start_elsewhere(port))["bootstrap"])
    assert address == f"127.0.0.1:{port}"
    assert find_running() == address
    found = status()
    assert (found.state, found.bootstrap, found.data_dir) == ("running", address, home / "data")
    topic = create_topic(address)
    append(address, topic, b"kept")
    assert down().pid == found.pid
    assert (find_running(), status().state) == (None, "stopped")
    assert is_free(port)
    said: list[str] = []
    assert up(port=port, on_progress=said.append).state == "running"
    assert said == [f"Starting Kafka on {address}"]
    assert contents(address, topic, 1) == [b"kept"]


def test_a_second_up_says_what_runs_and_where(home: Path) -> None:
    first = up(port=free_ports(1)[0])
    with pytest.raises(LocalKafkaError, match=r"already running at .*`kafka-pubsub down` it first") as caught:
        up(port=free_ports(1)[0])
    assert caught.value.code == 6
    assert first.bootstrap is not None
    assert first.bootstrap in caught.value.message
    assert up(exist_ok=True).pid == first.pid


def test_two_at_once_give_one_broker_and_one_error(home: Path) -> None:
    both = [start_elsewhere(free_ports(1)[0]), start_elsewhere(free_ports(1)[0])]
    answers = sorted((answer(one) for one in both), key=lambda data: "code" in data)
    assert find_running() == answers[0]["bootstrap"]
    assert answers[1]["code"] == 6


def test_a_crash_is_seen_and_the_next_up_recovers(home: Path) -> None:
    port = free_ports(1)[0]
    address = up(port=port).bootstrap
    assert address is not None
    topic = create_topic(address)
    append(address, topic, b"acknowledged")
    kill_broker()
    found = status()
    assert (found.state, found.bootstrap, find_running()) == ("crashed", address, None)
    assert found.problem is not None
    assert any("INFO" in line for line in found.log_tail)
    said: list[str] = []
    assert up(port=port, on_progress=said.append).state == "running"
    assert said[0].startswith("The last broker ended without `down`")
    assert contents(address, topic, 1) == [b"acknowledged"]


@pytest.mark.parametrize(("quick", "limit", "delay"), [(False, 1_048_588, "3000"), (True, 10_551_296, "0")])
def test_its_limits_are_those_of_a_stock_broker_unless_it_is_to_be_quick(
    home: Path, quick: bool, limit: int, delay: str
) -> None:
    address = up(port=free_ports(1)[0], ephemeral=True, services=False, quick=quick).bootstrap
    assert address is not None
    admin = AdminClient({"bootstrap.servers": address})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    (found,) = admin.describe_configs([resource]).values()
    values = {name: entry.value for name, entry in found.result(30).items()}
    assert values["message.max.bytes"] == str(limit)
    assert values["group.initial.rebalance.delay.ms"] == delay


def test_an_ephemeral_broker_leaves_nothing(home: Path) -> None:
    started = up(port=free_ports(1)[0], ephemeral=True)
    assert started.data_dir is not None
    assert started.data_dir.exists()
    down()
    assert not started.data_dir.exists()


def test_a_port_in_use_leaves_no_broker_behind(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(PortInUse, match=f"Port {port} is in use.*port=") as caught:
            up(port=port, ephemeral=True)
    assert caught.value.code == 14
    assert status().state == "stopped"


def test_a_start_that_takes_too_long_leaves_no_broker_behind(home: Path) -> None:
    port = free_ports(1)[0]
    with pytest.raises(LocalKafkaError, match=r"didn't answer .* within 0 s"):
        up(port=port, ready_timeout=0)
    assert status().state == "stopped"
    assert up(port=port).state == "running"
