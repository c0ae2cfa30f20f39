"""Where a benchmark ran: the facts that a reader must know before comparing two of them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sysconfig
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.report import Environment

__all__ = ["observe"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kafka-pubsub-orderly", "confluent-kafka", "aiokafka", "faststream")


def observe(repeats: int, quick: bool, embedded: bool) -> Environment:
    """This machine, now."""
    return Environment(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        commit=_commit(),
        cores=_cores(),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        load=f"{os.getloadavg()[0]:.1f}",
        versions=_versions(embedded),
        repeats=repeats,
        quick=quick,
    )


def _cores() -> int:
    # A container may be given fewer than there are; macOS can't say so.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _versions(embedded: bool) -> dict[str, str]:
    versions = {"Python": f"{platform.python_version()} ({_build()})"}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    import confluent_kafka

    versions["librdkafka"] = confluent_kafka.libversion()[0]
    if embedded:
        from kafka_pubsub.local.artifacts import load_lock

        versions["Kafka"] = f"{load_lock().kafka} (embedded)"
    return versions


def _build() -> str:
    """How fast the interpreter is: without optimization by profiles (PGO) everything is a quarter slower.

    Its flags don't always tell: Debian's interpreter has PGO and doesn't name it, so a fixed loop is measured as well.
    """
    flags = str(sysconfig.get_config_var("CONFIG_ARGS"))
    named = [
        name for name, flag in (("PGO", "--enable-optimizations"), ("LTO", "--with-lto")) if flag in flags
    ]
    pace = min(_loop() for _ in range(3))
    return (
        f"its flags name {' and '.join(named) or 'neither PGO nor LTO'}; a loop in pure Python: {pace:.2f} s"
    )


def _loop() -> float:
    started, found, length = time.process_time(), {}, 0
    for number in range(1_000_000):
        found[number & 1023] = number
        length += len(str(number & 15))
    return time.process_time() - started


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
