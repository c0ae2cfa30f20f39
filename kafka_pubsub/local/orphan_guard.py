"""Brokers that must end when this process ends.

Theory: the kernel's "signal me when my parent dies" follows the thread that started a process, not the
process, so a broker started from a short-lived thread would die too early. Instead a tiny shell waits for the
end of a pipe whose other end only this process holds: however it ends, kill -9 included, the pipe closes, and the
shell ends the brokers it knows and deletes temporary data.
Rule: a broker that has ended is `spare`d as soon as that is known, so that a reused process id is never signalled.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import IO

__all__ = ["Guard"]

# $1 is a directory to delete or nothing. `read` fails at the end of the pipe; the word "done" is what a release
# writes. A broker that was stopped in the middle (SIGSTOP) dies of a KILL all the same.
_SCRIPT = """
pids=
while read -r word pid; do
  case $word in
    watch) pids="$pids $pid" ;;
    spare)
      left=
      for each in $pids; do [ "$each" = "$pid" ] || left="$left $each"; done
      pids=$left ;;
    done) exit 0 ;;
  esac
done
for each in $pids; do kill -KILL "$each" 2>/dev/null; done
[ -n "$1" ] || exit 0
tries=0
for each in $pids; do
  while kill -0 "$each" 2>/dev/null && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
  done
done
rm -rf -- "$1"
"""


class Guard:
    """A guard that ends the watched processes and deletes `temporary` if this process dies before `release()`."""

    def __init__(self, temporary: Path | None = None) -> None:
        command = ["/bin/sh", "-c", _SCRIPT, "kafka-pubsub-guard", str(temporary or "")]
        self._shell = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def watch(self, pid: int) -> None:
        """Makes the guard kill the process `pid` when this process ends."""
        self._tell(f"watch {pid}")

    def spare(self, pid: int) -> None:
        """Stops watching a process that has ended, because another process may get its id."""
        self._tell(f"spare {pid}")

    def release(self) -> None:
        """Ends the guard: from now on this process stops the brokers and deletes their data itself."""
        if self._pipe.closed:
            return
        with contextlib.suppress(OSError):
            self._shell.communicate(b"done\n")

    def _tell(self, line: str) -> None:
        if self._pipe.closed:
            return
        # The guard may have been killed; that must not keep a broker from starting or ending.
        with contextlib.suppress(OSError):
            self._pipe.write(f"{line}\n".encode())
            self._pipe.flush()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._shell.stdin is not None
        return self._shell.stdin
