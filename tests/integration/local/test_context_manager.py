"""`LocalKafka` as tests of failures use it: it breaks on demand, comes back where it was, and never outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_pubsub.local import LocalKafka, LocalKafkaError, PortInUse, processes
from kafka_pubsub.local.tcp_ports import free_ports, is_free
from tests.integration.local.records import append, contents, create_topic


def test_data_and_address_survive_a_stop_and_a_kill_and_end_with_the_block() -> None:
    with LocalKafka() as kafka:
        address, folder, first = kafka.bootstrap, kafka.data_dir, kafka.pid
        topic = create_topic(address)
        append(address, topic, b"before the stop")
        kafka.stop()
        assert not kafka.running
        assert is_free(int(address.split(":")[1]))
        kafka.start()
        assert (kafka.bootstrap, kafka.data_dir) == (address, folder)
        append(address, topic, b"before the kill")
        kafka.kill()
        assert not kafka.running
        kafka.start()
        assert kafka.pid != first
        assert contents(address, topic, 2) == [b"before the stop", b"before the kill"]
    assert kafka.pid is None
    assert not folder.exists()


def test_a_directory_that_was_given_is_kept_and_used_again(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "data") as kafka:
        topic = create_topic(kafka.bootstrap)
        append(kafka.bootstrap, topic, b"kept")
    with LocalKafka(tmp_path / "data") as kafka:
        assert contents(kafka.bootstrap, topic, 1) == [b"kept"]
        # Against a second broker on the same data, before it touches anything.
        with pytest.raises(LocalKafkaError, match="Another broker is using the data directory") as caught:
            LocalKafka(tmp_path / "data").start()
        assert caught.value.code == 6
        assert contents(kafka.bootstrap, topic, 1) == [b"kept"]


def test_a_port_in_use_is_named() -> None:
    with LocalKafka() as kafka:
        port = int(kafka.bootstrap.split(":")[1])
        with pytest.raises(PortInUse, match=f"Port {port} is in use"), LocalKafka(port=port):
            pass


def test_a_port_that_is_taken_between_choice_and_start_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalKafka() as first:
        taken = int(first.bootstrap.split(":")[1])
        choices = iter([[taken, *free_ports(1)], [free_ports(1)[0], taken], free_ports(2)])
        monkeypatch.setattr("kafka_pubsub.local.broker_set.free_ports", lambda count: next(choices))
        with LocalKafka() as second:
            assert second.bootstrap != first.bootstrap
            create_topic(second.bootstrap)
        assert next(choices, None) is None


def test_a_broker_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "data" / "data").mkdir(parents=True)
    (tmp_path / "data" / "data" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=x\n")
    with pytest.raises(LocalKafkaError, match=r"(?s)ended by itself.*broker\.log.*node id 77"):
        LocalKafka(tmp_path / "data").start()


def test_a_foreign_directory_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "diary.txt").write_text("dear diary")
    with pytest.raises(LocalKafkaError, match="isn't a data directory of the embedded Kafka"):
        LocalKafka(tmp_path).start()
    assert (tmp_path / "data" / "diary.txt").read_text() == "dear diary"


PARENT = """
import sys, time
from kafka_pubsub.local import LocalKafka, processes
with LocalKafka() as kafka:
    print(kafka.pid, processes.identity(kafka.pid), kafka.data_dir, flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_broker_and_its_data_go_when_its_parent_dies(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, identity, folder = parent.stdout.readline().split()
        assert processes.is_alive(int(pid), identity)
        assert Path(folder).exists()
        os.kill(parent.pid, how)
        parent.wait(30)
    deadline = time.monotonic() + 30
    while (processes.is_alive(int(pid), identity) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes.is_alive(int(pid), identity)
    assert not Path(folder).exists()
