"""A driver in a process group of its own, with the jars that the suite's session has fetched, killed at the end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PATIENCE", "ROOT", "DriverGroup"]

ROOT = Path(__file__).resolve().parents[3]
#: Seconds for a driver's next step, on a machine that others use.
PATIENCE = 300
#: Characters of a driver's output that an error shows.
_SHOWN = 3000


class DriverGroup:
    """A command that is started at once; as a context its group is killed at the end. `log` takes its output."""

    def __init__(self, spark: SparkSession, command: Sequence[str], log: Path) -> None:
        jars = spark.sparkContext.getConf().get("spark.jars") or ""
        given = {"KAFKA_PUBSUB_SPARK_PACKAGES": "", "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
        self._log = log
        environment = {**os.environ, **given}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait(30)

    def signal(self, number: signal.Signals) -> None:
        """To every process of the group."""
        os.killpg(self._process.pid, number)

    def said(self) -> str:
        """The output."""
        return self._log.read_text()

    def check(self) -> None:
        """Fails if the driver has ended."""
        assert self._process.poll() is None, self.said()[-_SHOWN:]

    def ended(self) -> int:
        """Waits for its end, and returns the exit code."""
        return self._process.wait(PATIENCE)
