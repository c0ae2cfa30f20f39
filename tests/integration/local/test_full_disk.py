"""A disk that fills up under a running broker, on a file system of its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub.local import LocalKafkaError, down, status, up
from kafka_pubsub.local.tcp_ports import free_ports
from tests.integration.local.records import append, contents, create_topic


@pytest.fixture
def small_disk(tmp_path: Path, home: Path) -> Iterator[Path]:
    """300 MB, a little more than a start wants to see free."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"can't mount a file system ({mounted.stderr.strip()}): run pytest as root, with `sudo`")
    yield place
    down(timeout=0)
    subprocess.run(["umount", str(place)], check=True)


def fill(file: Path) -> None:
    """Write until the disk refuses."""
    with pytest.raises(OSError, match="No space left"), file.open("wb", buffering=0) as stream:  # noqa: PT012
        while stream.write(bytes(1 << 16)):
            pass


def test_a_full_disk_is_named_and_costs_nothing_that_was_acknowledged(small_disk: Path) -> None:
    started = up(port=free_ports(1)[0], data_dir=small_disk / "data")
    assert started.bootstrap is not None
    topic = create_topic(started.bootstrap)
    append(started.bootstrap, topic, b"acknowledged")
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(AssertionError):
        append(started.bootstrap, topic, *[bytes(100_000)] * 50, patience_s=3)
    deadline = time.monotonic() + 30
    while status().state != "crashed" and time.monotonic() < deadline:
        time.sleep(0.05)
    found = status()
    assert found.state == "crashed"
    assert found.problem is not None
    assert "The disk of" in found.problem
    with pytest.raises(LocalKafkaError, match=r"disk of .* is full.*data_dir=") as caught:
        up(port=free_ports(1)[0], data_dir=small_disk / "data")
    assert caught.value.code == 8
    ballast.unlink()
    again = up(port=free_ports(1)[0], data_dir=small_disk / "data")
    assert again.bootstrap is not None
    assert contents(again.bootstrap, topic, 1) == [b"acknowledged"]
