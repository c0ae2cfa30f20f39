"""Peer: Confluent's Parallel Consumer, ordering KEY, in Java.

Needs `javac`: the row is a Java file beside this package, compiled at each run. It runs on the `java` beside that
`javac`, with the JVM's own defaults.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.benchmarks.row import Measured, Missing

__all__ = ["handle", "pull"]

COORDINATE = "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3"
SOURCE = Path(__file__).resolve().parents[1] / "ParallelConsumerRow.java"
# jgo's cache isn't made for two processes at once; the second attempt finds the files that the other has fetched.
DOWNLOAD_ATTEMPTS = 3


def pull(
    bootstrap: str,
    topic: str,
    group: str,
    warmup: int,
    measured: int,
    patience: float,
    threads: list[int],
    trial: int,
) -> Measured:
    """The no-op handler at the best of several thread counts, found by shorter trials over the same topic.

    Its figure is its best rate, in a trial or a long run: its long runs were slower than its trials.
    """
    with _Compiled() as compiled:
        tried = {
            count: compiled.rate(
                bootstrap, topic, f"{group}-trial-{count}", count, warmup, trial, 0.0, patience
            )[0]
            for count in threads
        }
        best = max(tried, key=lambda count: tried[count])
        rate, fifths = compiled.rate(bootstrap, topic, group, best, warmup, measured, 0.0, patience)
    trials = ", ".join(f"{count}: {each / 1000:.0f}k/s" for count, each in tried.items())
    paces = ", ".join(f"{each / 1000:.0f}" for each in fifths)
    note = f"{best} threads: {rate / 1000:.0f}k/s in the long run, by fifths {paces}k/s (trials of {trial:,}: {trials})"
    return {"rate": max(rate, tried[best]), "threads": best, "note": note}


def handle(
    bootstrap: str,
    topic: str,
    group: str,
    workers: int,
    warmup: int,
    measured: int,
    handler: float,
    patience: float,
) -> Measured:
    """A handler that sleeps, on as many threads as the other rows have workers."""
    with _Compiled() as compiled:
        rate, _ = compiled.rate(bootstrap, topic, group, workers, warmup, measured, handler, patience)
    return {"rate": rate}


class _Compiled:
    """The compiled row, in a directory that lives as long as the `with` block."""

    def __enter__(self) -> _Compiled:
        self._javac = shutil.which("javac")
        if self._javac is None:
            raise Missing("a JDK 17 or newer: its `javac` isn't on the PATH")
        self._folder = tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-")
        jars = os.pathsep.join(map(str, _jars()))
        command = [self._javac, "-d", self._folder.name, "-cp", jars, str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"javac: {done.stderr.strip()[:500]}")
        self._path = os.pathsep.join((self._folder.name, jars))
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def rate(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        threads: int,
        warmup: int,
        measured: int,
        handler: float,
        patience: float,
    ) -> tuple[float, list[float]]:
        """Messages per second of a run in a JVM of its own, and of each fifth of it."""
        assert self._javac is not None
        java = Path(self._javac).resolve().with_name("java")
        numbers = [threads, warmup, measured, round(handler * 1e6), round(patience)]
        command = [str(java), "-cp", self._path, SOURCE.stem, bootstrap, topic, group, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.strip().splitlines()
        if not lines:
            raise RuntimeError(f"java ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        report = json.loads(lines[-1])
        if "error" in report:
            raise RuntimeError(report["error"])
        return float(report["count"] / report["seconds"]), report["fifths"]


def _jars() -> list[Path]:
    import jgo

    from kafka_pubsub.local.repositories import remote_repositories

    for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
        try:
            return list(jgo.build(COORDINATE, repositories=remote_repositories()).all_jars)
        except (AssertionError, OSError, RuntimeError) as error:
            if attempt == DOWNLOAD_ATTEMPTS:
                raise Missing(f"the artifacts of {COORDINATE}, which jgo couldn't fetch ({error})") from error
    raise AssertionError("unreachable")
