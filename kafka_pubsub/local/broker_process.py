"""Starting and ending the Java process of one broker.

Theory: a broker is prepared (files written, data directory formatted once), launched in a session of its own,
so that Ctrl-C reaches only us, and then waited for: until it answers on its port or is dead. What it died of
is read from its logs (`diagnosis`).
Rules: a directory is formatted beside its place and renamed into it, so that a kill in between leaves nothing
half made. Nothing here knows whether the broker is to outlive this process; `orphan_guard` ties it to us when it
must not.
"""

from __future__ import annotations

import base64
import errno
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kafka_pubsub.local.diagnosis import data_in_use, disk_full, explain_death, require_disk
from kafka_pubsub.local.errors import UNAVAILABLE, LocalKafkaError
from kafka_pubsub.local.file_lock import try_exclusive
from kafka_pubsub.local.installation import Installation
from kafka_pubsub.local.node_config import NodeFiles, NodeSettings, log_settings, server_properties
from kafka_pubsub.local.tcp_ports import broker_answers

__all__ = ["launch", "new_cluster_id", "prepare", "wait_until_ready"]

# A broker is there after 2 s; ten times as long on a busy 2-core machine that also recovers its logs is still
# honest.
READY_TIMEOUT_S = 90.0
POLL_S = 0.02
FORMAT_TIMEOUT_S = 90.0
# Short-lived helpers of Kafka don't earn back the optimizing compiler or parallel collection.
QUICK_JVM = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@contextmanager
def prepare(installation: Installation, files: NodeFiles, settings: NodeSettings) -> Iterator[IO[str]]:
    """Writes the node's files, and formats its data directory if it is new.

    Yields the locked lock file of the directory, for the broker to inherit.
    """
    with _claimed(files) as lock:
        _write_files(installation, files, settings)
        yield lock


@contextmanager
def _claimed(files: NodeFiles) -> Iterator[IO[str]]:
    try:
        lock = try_exclusive(files.root / "broker.lock")
    except OSError as error:
        raise _not_writable(files, error) from error
    if lock is None:
        raise data_in_use(files.root)
    with lock:
        yield lock


def _write_files(installation: Installation, files: NodeFiles, settings: NodeSettings) -> None:
    require_disk(files.root)
    try:
        if not files.formatted:
            _format(installation, files, settings)
        files.properties.write_text(server_properties(settings, files.log_dir), "ascii")
        files.log_settings.write_text(log_settings(files.broker_log), "ascii")
    except OSError as error:
        raise _not_writable(files, error) from error


def _not_writable(files: NodeFiles, error: OSError) -> LocalKafkaError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(files.root, str(error.strerror))
    return LocalKafkaError(
        f"Can't write to the data directory {files.root} ({error.strerror or error}). "
        "Make it writable, or choose another (data_dir=)."
    )


def launch(
    installation: Installation, files: NodeFiles, heap_mb: int, lock: IO[str], *, detached: bool = False
) -> subprocess.Popen[bytes]:
    """Starts the broker in a session of its own; the broker holds `lock` as long as it lives."""
    # G1 keeps pauses short at a throughput that neither the serial nor the parallel collector beat.
    jvm = [f"-Xmx{heap_mb}m", "-XX:+UseG1GC", "-Djava.awt.headless=true"]
    jvm += ["-XX:+ExitOnOutOfMemoryError", f"-Dlog4j2.configurationFile={files.log_settings.as_uri()}"]
    command = installation.command("kafka.Kafka", jvm, [str(files.properties)])
    # What the last run logged must not explain how this one died.
    files.broker_log.unlink(missing_ok=True)
    with files.output.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            pass_fds=[lock.fileno()],
        )
    if detached:
        # Popen warns about a child that it leaves running; this one is meant to be left.
        process.returncode = 0
    return process


def wait_until_ready(
    files: NodeFiles,
    settings: NodeSettings,
    is_dead: Callable[[], bool],
    timeout_s: float = READY_TIMEOUT_S,
) -> None:
    """Waits until the broker answers; raises an error if it dies or takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        if is_dead():
            raise explain_death(files, settings.port)
        if broker_answers(settings.port, files.cluster_id):
            return
        if time.monotonic() > deadline:
            raise LocalKafkaError(
                f"The broker didn't answer on {settings.bootstrap} within {timeout_s:.0f} s. Its log is "
                f"{files.broker_log}; on a slow machine wait longer (ready_timeout=).",
                code=UNAVAILABLE,
            )
        time.sleep(POLL_S)


def _format(installation: Installation, files: NodeFiles, settings: NodeSettings) -> None:
    scratch = files.root / "formatting"
    shutil.rmtree(scratch, ignore_errors=True)
    if files.log_dir.exists() and any(files.log_dir.iterdir()):
        raise LocalKafkaError(
            f"{files.log_dir} isn't empty and isn't a data directory of the embedded Kafka (no "
            "meta.properties). "
            "Choose another directory, or move what is in it."
        )
    shutil.rmtree(files.log_dir, ignore_errors=True)
    properties = files.root / "formatting.properties"
    properties.write_text(server_properties(settings, scratch), "ascii")
    command = installation.command(
        "kafka.tools.StorageTool",
        QUICK_JVM,
        ["format", "-t", settings.cluster_id or new_cluster_id(), "-c", str(properties)],
    )
    _run_format(command, scratch)
    scratch.rename(files.log_dir)
    properties.unlink()


def _run_format(command: list[str], scratch: Path) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalKafkaError(f"Couldn't run Kafka's format command with {command[0]}: {error}") from error
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip()[-500:]
        raise LocalKafkaError(f"Kafka couldn't format its data directory {scratch.parent}:\n{tail}")


def new_cluster_id() -> str:
    """Returns a random cluster id in Kafka's form: 16 bytes in URL-safe base 64, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The format command would take a leading dash for an option.
        if not text.startswith("-"):
            return text
