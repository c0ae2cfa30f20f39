"""A broker that must not outlive us.

Theory: the kernel's "signal me when my parent dies" follows the thread that started a process, not the
process, so a broker started from a short-lived thread would die too early. Instead a tiny shell waits for the
end of a pipe whose other end only we hold: however we die, kill -9 included, the pipe closes and the shell
ends the broker and deletes what was temporary.
Rule: whoever stops the broker in order releases the guard first, so that it never signals a reused process
id.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["Guard"]

# $1 is the broker, $2 a directory to delete or nothing. `read` returns at the end of the pipe; the word
# "done" is what a release writes.
_SCRIPT = """
read -r word
[ "$word" = done ] && exit 0
kill -KILL "$1" 2>/dev/null
[ -n "$2" ] || exit 0
tries=0
while kill -0 "$1" 2>/dev/null && [ "$tries" -lt 100 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
rm -rf -- "$2"
"""


class Guard:
    """Ends process `pid`, and deletes `temporary`, when this process dies before `release()`."""

    def __init__(self, pid: int, temporary: Path | None = None) -> None:
        command = ["/bin/sh", "-c", _SCRIPT, "kafka-pubsub-guard", str(pid), str(temporary or "")]
        self._shell = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def release(self) -> None:
        """The broker is ours to stop again; the guard does nothing any more."""
        self._shell.communicate(b"done\n")
