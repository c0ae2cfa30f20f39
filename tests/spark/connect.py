"""A Spark Connect server on this machine, started from the jars that come with pyspark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kafka_pubsub.local.orphan_guard import Guard
from tests.spark.needs import SHORT_LIVED
from tests.spark.standalone import HOME, PATIENCE

__all__ = ["connect_server"]

#: Small, and with an address that is told in its log.
CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "900m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@contextmanager
def connect_server(directory: Path, options: Sequence[str], python_path: Path) -> Iterator[str]:
    """The URL of a server whose Python, of the path `python_path`, is late once. `options` are for spark-submit."""
    log = directory / "connect.log"
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", *options]
    command += [f"--conf={name}={value}" for name, value in CONF.items()]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(_late_python(directory)),
        "PYTHONPATH": str(python_path),
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The server says where it is reached on this level only.
        "SPARK_CONF_DIR": str(_logging(directory)),
    }
    guard = Guard()
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    guard.watch(server.pid)
    try:
        yield f"sc://{_address(server, log)}"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)
        guard.release()


def _late_python(directory: Path) -> Path:
    """A Python whose first process for a stream takes longer than the 10 s that Spark gives it, as on a busy server."""
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *foreach_batch_worker*) mkdir "{directory}/late" 2>/dev/null && sleep 11 ;; esac\n'
        f'exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


def _logging(directory: Path) -> Path:
    conf = directory / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "logger.connect.name = org.apache.spark.sql.connect.service.SparkConnectServer\n"
        "logger.connect.level = info\n"
    )
    return conf


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + PATIENCE
    while not (found := re.search(r"server started at: (\S+:\d+)", log.read_text(errors="replace"))):
        assert server.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < until, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
    return found[1]
