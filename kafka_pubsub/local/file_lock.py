"""Advisory locks on files: the kernel releases them when their last holder dies, so none is ever left behind.

Rule: a lock file is never deleted. A process may be waiting for it, and would then hold a lock that no other
process sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kafka_pubsub.local.errors import LocalKafkaError

__all__ = ["exclusive", "shared", "try_exclusive"]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits for the lock, and holds it exclusively."""
    with _opened(path) as file:
        _lock(file, alone=True)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Waits until no process holds the lock exclusively, and holds it together with others."""
    with _opened(path) as file:
        _lock(file, alone=False)
        yield


def try_exclusive(path: Path) -> IO[str] | None:
    """Lock and return the open lock file, or return None if it is locked; a child process may inherit it."""
    file = _opened(path)
    try:
        _lock(file, alone=True, wait=False)
    except BlockingIOError:
        file.close()
        return None
    return file


def _lock(file: IO[str], *, alone: bool, wait: bool = True) -> None:
    try:
        import fcntl
    except ImportError:
        raise LocalKafkaError(
            "The embedded Kafka runs on Linux and macOS. On Windows use it inside WSL, or use an existing cluster."
        ) from None
    fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))


def _opened(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a")
