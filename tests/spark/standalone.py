"""A local standalone cluster: a master and some workers, started with the scripts that come with pyspark.

`KAFKA_PUBSUB_SPARK_MASTER=standalone` runs the session of the suite on such a cluster, as CI does; `local[2]` is used
otherwise, because it starts sooner and its errors are all in a single place.

Rules
1. Nothing outlives the test that asked for it, nor the process of the tests, whatever that dies of.
2. Logs and scratch files are in the directory that is given.
3. Of our code the workers' executors run the driver's zip, as on nodes without an installation.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
import pytest

from kafka_pubsub.local.orphan_guard import Guard
from kafka_pubsub.local.processes import after_the_name
from tests.spark.needs import SHORT_LIVED

__all__ = [
    "CHOICE",
    "HOME",
    "WORKERS",
    "Standalone",
    "Worker",
    "chosen_master",
    "kill_executor",
    "standalone",
]

Worker = subprocess.Popen[bytes]
#: The master's URL, and the workers.
Standalone = tuple[str, list[Worker]]

#: pip installed a whole Spark.
HOME = Path(pyspark.__file__).parent

#: The variable that says where the session of the suite runs, and its values.
CHOICE = "KAFKA_PUBSUB_SPARK_MASTER"
LOCAL, CLUSTER = "local[2]", "standalone"
WORKERS = 2

#: Seconds for a JVM to come up on a busy machine.
PATIENCE = 180.0


@contextmanager
def chosen_master() -> Iterator[str]:
    """The master of the suite's session, by `CHOICE`."""
    told = os.environ.get(CHOICE) or LOCAL
    if told not in (LOCAL, CLUSTER):
        pytest.fail(f"{CHOICE} is {told!r}: it may be {LOCAL!r} (the default) or {CLUSTER!r}", pytrace=False)
    if told == LOCAL:
        yield LOCAL
        return
    # Each executor has jars of some 200 MB there: too much for a directory that pytest keeps for some runs.
    with (
        TemporaryDirectory(prefix="kafka_pubsub-cluster-", ignore_cleanup_errors=True) as directory,
        standalone(Path(directory)) as (url, _),
    ):
        yield url


@contextmanager
def standalone(directory: Path, workers: int = WORKERS) -> Iterator[Standalone]:
    """The master's URL, and the workers' processes, to be killed if a test likes to."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
    }
    started: list[subprocess.Popen[bytes]] = []
    guard = Guard()

    def start(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), *arguments]
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            )
        guard.watch(started[-1].pid)
        return log

    try:
        master = start(
            "master",
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
        )
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        logs = [
            start(
                f"worker{number}",
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0"),
                *("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work{number}"), url),
            )
            for number in range(workers)
        ]
        for log in logs:
            _said(log, r"(Successfully registered with master)")
        yield url, started[1:]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        guard.release()


def _said(log: Path, pattern: str) -> str:
    until = time.monotonic() + PATIENCE
    while True:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found[1]
        assert time.monotonic() < until, text[-2000:]
        time.sleep(0.1)


def kill_executor(worker: Worker) -> None:
    """SIGKILL to the executor that the worker has started."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int(after_the_name(process / "stat")[1])
            if parent == worker.pid and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
                return
    raise AssertionError(f"worker {worker.pid} runs no executor")
