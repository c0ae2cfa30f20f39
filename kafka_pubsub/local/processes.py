"""Processes by id and start time.

Theory: a process id is reused after its process ended, so the id alone doesn't identify a process.
Together with the time the process started (and the boot it started in) it does: that is its `identity`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

__all__ = ["after_the_name", "end", "identity", "is_alive", "wait_until_frozen"]

POLL_S = 0.02


def identity(pid: int) -> str | None:
    """Returns a text that distinguishes this process from a later one with the same id; None if it is dead."""
    if Path("/proc/self/stat").exists():
        return _identity_from_proc(pid)
    return _identity_from_ps(pid)


def is_alive(pid: int, known: str) -> bool:
    """Returns whether the process that had this id and identity still runs."""
    # When the broker is a child of this very process, it stays a zombie until we wait for it.
    with contextlib.suppress(OSError):
        os.waitpid(pid, os.WNOHANG)
    return identity(pid) == known


def end(pid: int, known: str, timeout_s: float) -> None:
    """Stops the process cleanly, or by SIGKILL if that takes longer than `timeout_s`."""
    for how, patience in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
        if not is_alive(pid, known):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        deadline = time.monotonic() + patience
        while is_alive(pid, known) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def wait_until_frozen(pid: int, timeout_s: float) -> None:
    """Waits until SIGSTOP has stopped all threads of a process, which takes a while on a busy machine. Linux only."""
    deadline = time.monotonic() + timeout_s
    while not _is_frozen(pid) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _is_frozen(pid: int) -> bool:
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if after_the_name(stat)[0] not in "TtZX":
                return False
    return True


def after_the_name(stat: Path) -> list[str]:
    """Returns the fields of a process or thread from its state on.

    Before them come its number and its name in parentheses, which may hold any character.
    """
    return stat.read_text("utf-8", "replace").rpartition(")")[2].split()


def _identity_from_proc(pid: int) -> str | None:
    try:
        fields = after_the_name(Path(f"/proc/{pid}/stat"))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None
    state, threads, started = fields[0], int(fields[17]), fields[19]
    # A zombie with threads is still ending: its ports and locks aren't free yet.
    return None if state in "ZX" and threads <= 1 else f"{boot}:{started}"


def _identity_from_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
