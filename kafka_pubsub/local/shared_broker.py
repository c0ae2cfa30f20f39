"""One ephemeral broker shared by processes that don't know each other: the workers of a parallel test run.

Theory: the first process starts a holder, a process that runs the broker; every user holds a shared lock while it
needs the broker. The holder waits for the same lock exclusively: it gets it when the last user is gone, killed
ones included, and then closes the broker. If the holder itself is killed, its broker ends with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.errors import UNAVAILABLE, LocalKafkaError, PartsMissing
from kafka_pubsub.local.file_lock import exclusive, shared
from kafka_pubsub.local.node_config import NodeFiles
from kafka_pubsub.local.tcp_ports import broker_answers

__all__ = ["shared_kafka"]

POLL_S = 0.05
#: Seconds. Tests starve the broker of processor time, and none of them kills it.
SESSION_TIMEOUT_S = 60.0


@contextmanager
def shared_kafka(folder: Path, *, services: bool = False) -> Iterator[str]:
    """Yields the address of the broker that all processes with the same `folder` share.

    `services` (default False, and the same for all of them): whether a delay router and a sequencer run beside it.
    """
    with shared(folder / "users.lock"):
        with exclusive(folder / "start.lock"):
            address = _answering(folder) or _start(folder, services=services)
        yield address


def hold(folder: Path, *, services: bool) -> None:
    """Runs the broker until its last user is gone; the holder process does nothing else."""
    report = folder / "holder.json"
    try:
        kafka = LocalKafka(session_timeout=SESSION_TIMEOUT_S, services=services)
        kafka.start()
    except LocalKafkaError as error:
        _write(
            report, {"error": error.message, "code": error.code, "missing": isinstance(error, PartsMissing)}
        )
        return
    try:
        _write(report, {"bootstrap": kafka.bootstrap, "data_dir": str(kafka.data_dir)})
        with exclusive(folder / "users.lock"):
            report.unlink(missing_ok=True)
            kafka.close()
    finally:
        kafka.close()


def _start(folder: Path, *, services: bool) -> str:
    report = folder / "holder.json"
    report.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-c",
        "import sys; from kafka_pubsub.local import shared_broker; shared_broker.main(sys.argv)",
    ]
    with (folder / "holder.log").open("wb") as log:
        holder = subprocess.Popen(
            [*command, str(folder), *["services"] * services],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not report.exists():
        if holder.poll() is not None and not report.exists():
            text = (folder / "holder.log").read_text("utf-8", "replace")
            raise LocalKafkaError(
                f"The process that was to run the shared Kafka ended:\n{text}", code=UNAVAILABLE
            )
        time.sleep(POLL_S)
    return _reported(report)[0]


def _reported(report: Path) -> tuple[str, NodeFiles]:
    data = json.loads(report.read_text("utf-8"))
    if "error" in data:
        kind = PartsMissing if data["missing"] else LocalKafkaError
        raise kind(data["error"], code=data["code"])
    return data["bootstrap"], NodeFiles(Path(data["data_dir"]))


def _answering(folder: Path) -> str | None:
    try:
        address, files = _reported(folder / "holder.json")
    except (OSError, LocalKafkaError):
        return None
    return address if broker_answers(int(address.rpartition(":")[2]), files.cluster_id) else None


def _write(path: Path, data: dict[str, object]) -> None:
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(data), "utf-8")
    scratch.replace(path)


def main(arguments: list[str]) -> None:
    """Runs the holder process; its arguments are the folder, and the word "services" if these run beside it."""
    hold(Path(arguments[1]), services="services" in arguments[2:])
