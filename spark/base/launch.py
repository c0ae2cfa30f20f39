"""Starts Spark's Java process, and keeps what it prints until the session is there.

Theory. Spark resolves its packages before anything else, and prints some 60 lines about it. They matter only if a jar
can't be had. So the process writes its errors into a pipe, and a thread of this process reads them: it keeps the lines
until the session is there, and then passes on what comes.

Rules
1. If the start fails, the error names the jars that are missing and what to do; other lines are printed then.
2. With KAFKA_PUBSUB_SPARK_LOG everything is printed at once. So it is under spark-submit, which started Java itself.
3. A download takes a while, so one line says that it has begun.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_pubsub.errors import FailedPrecondition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start"]

#: With one of these the process runs already, or isn't wanted, or its lines are.
_NOT_OURS = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "KAFKA_PUBSUB_SPARK_LOG")
_DOWNLOAD = b"downloading "
_MISSING = re.compile(r"(?:unresolved dependency|download failed): ([^\s:\],]+)")


def start(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Returns a new session, and starts Spark's Java process first if this process has none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if SparkContext._gateway is not None or any(each in os.environ for each in _NOT_OURS):
        return builder.getOrCreate()
    lines = _Lines()
    try:
        _launch(name, settings, lines)
        return builder.getOrCreate()
    except Exception:
        sys.stderr.write("".join(lines.pass_on()))
        raise
    finally:
        lines.pass_on()


def _launch(name: str, settings: Mapping[str, str], lines: _Lines) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items())).setAppName(name)
    ended = None
    try:
        gateway = launch_gateway(conf, {"stderr": lines.end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        ended = error
    finally:
        lines.close()
    if ended is not None:
        raise _explained(lines.all()) from ended
    SparkContext(conf=conf, gateway=gateway)


def _explained(said: list[str]) -> FailedPrecondition:
    """Returns the error for a process that ended at its start, by its lines, which it prints if they say more."""
    missing = sorted({found for line in said for found in _MISSING.findall(line)})
    if missing:
        return FailedPrecondition(
            f"Spark can't fetch its jars ({', '.join(missing)}): no repository that it asks has them, or none is "
            "reached. Name one that this machine reaches, with spark.jars.repositories=URL or spark.jars.ivySettings="
            "FILE (--conf); or put the jars into Spark's own directory, and set KAFKA_PUBSUB_SPARK_PACKAGES to nothing"
        )
    sys.stderr.write("".join(said))
    return FailedPrecondition("Spark's Java process ended at its start; its last lines are above")


class _Lines:
    """What the process prints; `end` is where it writes."""

    def __init__(self) -> None:
        out, self.end = os.pipe()
        self._lock = threading.Lock()
        #: None: lines are passed on.
        self._kept: list[str] | None = []
        self._told = False
        self._reader = threading.Thread(target=self._read, args=(out,), name="spark-lines", daemon=True)
        self._reader.start()

    def _read(self, out: int) -> None:
        with open(out, "rb") as stream:
            for line in stream:
                self._take(line)

    def _take(self, line: bytes) -> None:
        with self._lock:
            if self._kept is None:
                os.write(2, line)
                return
            self._kept.append(line.decode("utf-8", "replace"))
            if line.startswith(_DOWNLOAD) and not self._told:
                self._told = True
                sys.stderr.write("Spark fetches its jars, once\n")

    def close(self) -> None:
        """Closes this process's own copy of the end, so that reading ends with the process."""
        os.close(self.end)

    def all(self) -> list[str]:
        """Returns the lines of a process that has ended."""
        self._reader.join(10)
        return self.pass_on()

    def pass_on(self) -> list[str]:
        """Passes lines on from now, and returns those that were kept."""
        with self._lock:
            kept, self._kept = self._kept or [], None
        return kept
