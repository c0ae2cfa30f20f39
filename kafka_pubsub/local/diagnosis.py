"""Finding in a broker's logs why it ended, and saying what to do about it.

Rule: an error always ends with the last lines of the broker's log, or with the path of the log; a guess never
replaces them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from kafka_pubsub.local.errors import (
    ALREADY_EXISTS,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    LocalKafkaError,
    PortInUse,
)
from kafka_pubsub.local.node_config import NodeFiles

__all__ = ["data_in_use", "disk_full", "explain_death", "last_lines", "require_disk"]

# Segments and indexes of the internal topics take a few MB at once; below this a broker dies within minutes.
LEAST_FREE_BYTES = 256 * 1024 * 1024
# Less than a new segment with its indexes takes: a broker that died here died of it.
NO_ROOM_BYTES = 32 * 1024 * 1024
# The end of a log: enough for a stack trace, small enough to read on every status.
TAIL_BYTES = 64 * 1024


def require_disk(folder: Path) -> None:
    """Raises an error if a broker would soon run out of disk."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise disk_full(folder, f"{free >> 20} MB free, {LEAST_FREE_BYTES >> 20} MB needed at least")


def disk_full(folder: Path, found: str) -> LocalKafkaError:
    """Returns the error for a full disk under the data directory."""
    return LocalKafkaError(
        f"The disk of {folder} is full ({found}). Free some space there, or choose a data directory "
        "on another disk (data_dir=). What was acknowledged to publishers is kept.",
        code=RESOURCE_EXHAUSTED,
    )


def data_in_use(folder: Path) -> LocalKafkaError:
    """Returns the error for a data directory that another broker uses."""
    return LocalKafkaError(
        f"Another broker is using the data directory {folder}. Stop it, or choose another directory (data_dir=).",
        code=ALREADY_EXISTS,
    )


def explain_death(files: NodeFiles, port: int) -> LocalKafkaError:
    """Returns an error that says why a broker ended by itself, as far as its logs tell."""
    text = _tail(files.broker_log) + _tail(files.output)
    if "Address already in use" in text:
        # The broker has a second port, for its controller, which the user didn't choose.
        bound = re.findall(r"failed to bind to \S+:(\d+)", text)
        return PortInUse(int(bound[-1]) if bound else port)
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return disk_full(files.root, "the broker said: no space left on device")
    if "Failed to acquire lock on file .lock" in text:
        return data_in_use(files.root)
    if "OutOfMemoryError" in text or "Could not reserve enough space" in text:
        return LocalKafkaError(
            "The broker ran out of memory. Give it more (heap_mb=), or free memory on this machine.",
            code=RESOURCE_EXHAUSTED,
        )
    free = _free(files.root)
    if free is not None and free < NO_ROOM_BYTES:
        # The broker's log is on the same disk, so it may not have been able to say it.
        return disk_full(files.root, f"{free >> 20} MB free")
    lines = "\n".join(f"  {line}" for line in last_lines(files)) or "  (it logged nothing)"
    return LocalKafkaError(
        f"The broker ended by itself. Its last words, from {files.broker_log}:\n{lines}", code=UNAVAILABLE
    )


def last_lines(files: NodeFiles, count: int = 10) -> list[str]:
    """Returns the end of the broker's log, or of the Java process's output if it has logged nothing."""
    text = _tail(files.broker_log).strip() or _tail(files.output).strip()
    return text.splitlines()[-count:]


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
