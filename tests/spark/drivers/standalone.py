"""A local standalone cluster: one master and some workers, started with the scripts that come with pyspark."""

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

import pyspark

from tests.spark.needs import SHORT_LIVED

__all__ = ["HOME", "Standalone", "Worker", "kill_executor", "standalone"]

Worker = subprocess.Popen[bytes]
#: The master's URL, and the workers.
Standalone = tuple[str, list[Worker]]

#: What pip installed is a whole Spark.
HOME = Path(pyspark.__file__).parent

#: Seconds for a JVM to come up on a busy machine.
PATIENCE = 180.0


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    """The master's URL, and the workers' processes, to be killed if a test likes to."""
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        command = [str(HOME / "bin" / "spark-class"), *arguments]
        with log.open("wb") as out:
            started.append(
                subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            )
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
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker.pid and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
                return
    raise AssertionError(f"worker {worker.pid} runs no executor")
