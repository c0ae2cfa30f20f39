"""The record of the broker that `up` started, so that `down`, `status` and every other command find it.

Rules: the record is replaced by a rename, never written in place; what can't be read as a record (an older
version, half a disk) counts as none. That a record exists says that `up` was called and `down` wasn't, not
that the broker lives: ask `alive`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_pubsub.local.node_config import LOOPBACK, NodeFiles
from kafka_pubsub.local.processes import is_alive

__all__ = ["BrokerRecord", "forget", "load", "save"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker that was started; `started_at` is in seconds since 1970."""

    pid: int
    identity: str
    port: int
    data_dir: str
    ephemeral: bool
    started_at: float
    #: The process of the services that `up` started; 0: it started none.
    services_pid: int = 0
    services_identity: str = ""

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def files(self) -> NodeFiles:
        """The broker's files."""
        return NodeFiles(Path(self.data_dir))

    @property
    def alive(self) -> bool:
        """Returns whether the broker's process still runs (and isn't another process with its id)."""
        return is_alive(self.pid, self.identity)

    @property
    def services_alive(self) -> bool | None:
        """Returns whether the services still run; None: none were started."""
        return is_alive(self.services_pid, self.services_identity) if self.services_pid else None


def load(path: Path) -> BrokerRecord | None:
    """Reads the record; returns None if there is none, or it can't be read."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data.pop("format") != FORMAT:
            return None
        return BrokerRecord(**data)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def save(path: Path, record: BrokerRecord) -> None:
    """Replaces the record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(json.dumps({"format": FORMAT, **asdict(record)}, indent=1) + "\n", "utf-8")
    scratch.replace(path)


def forget(path: Path) -> None:
    """Deletes the record."""
    path.unlink(missing_ok=True)
