"""The process of the services beside a broker, which runs `kafka-pubsub service all`.

Theory. The process has a session of its own. Its record is a part of that of the broker that `up` started, so `down`
and `status` find it. Beside a broker of this process (`LocalKafka`) it ends with this process, even if that is killed.

Rules
1. The services never keep the broker from starting: what is wrong with them is in their log, and `status` says that
   they don't run.
2. They end before the broker does, so that what is under way is stored.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kafka_pubsub.local import processes
from kafka_pubsub.local.orphan_guard import Guard

__all__ = ["TiedServices", "end_services", "services_log", "start_services"]

#: Seconds that the services may take to store what is under way.
STOP_TIMEOUT_S = 15.0


def services_log(root: Path) -> Path:
    """Returns the path of the services' log, below the broker's directory."""
    return root / "services.log"


def start_services(bootstrap: str, root: Path, *, keep_log: bool = False) -> tuple[int, str]:
    """Starts the services of a broker; returns the process's id and identity.

    `keep_log`: write behind the log of the services before, which says why they ended.
    """
    command = [sys.executable, "-m", "kafka_pubsub", "--bootstrap", bootstrap]
    command += ["service", "all"]
    environment = {name: value for name, value in os.environ.items() if not _is_ours(name)}
    with services_log(root).open("ab" if keep_log else "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    # Popen warns about a child that it leaves running; this one is meant to be left.
    process.returncode = 0
    return process.pid, processes.identity(process.pid) or ""


def end_services(pid: int, known: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Ends the services, if they run."""
    if pid:
        processes.end(pid, known, timeout_s)


class TiedServices:
    """The services of a broker that ends with this process; they end with this process as well."""

    def __init__(self, bootstrap: str, root: Path) -> None:
        self._guard = Guard()
        self._pid, self._known = start_services(bootstrap, root)
        self._guard.watch(self._pid)

    def close(self, *, at_once: bool) -> None:
        """Ends them; `at_once`: the work that they have begun needn't be stored."""
        end_services(self._pid, self._known, 0.0 if at_once else STOP_TIMEOUT_S)
        self._guard.release()


def _is_ours(name: str) -> bool:
    """Returns whether a variable is about other clusters or programs than this broker."""
    return name.removeprefix("KAFKA_PUBSUB_") in ("CONFIG", "CONFIG_FILE", "CREATE", "HISTORY", "SCHEMAS")
