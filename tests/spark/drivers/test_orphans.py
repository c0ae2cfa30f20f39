"""A cluster ends with the process that started it, whatever that process dies of."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.spark.needs import need_spark

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import os, signal, sys
from pathlib import Path
from tests.spark.standalone import standalone

with standalone(Path(sys.argv[1]), workers=1):
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def started_in(directory: Path) -> list[str]:
    """The processes whose scratch directory is there."""
    mark = f"SPARK_LOCAL_DIRS={directory}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes() and b"java" in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_cluster_whose_owner_is_killed_is_gone(tmp_path: Path) -> None:
    need_spark()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.stdout == "up\n", killed.stderr
    until = time.monotonic() + 60
    while left := started_in(tmp_path):
        assert time.monotonic() < until, left
        time.sleep(0.1)
