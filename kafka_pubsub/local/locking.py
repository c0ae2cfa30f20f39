"""Advisory locks on files: released by the kernel when their last holder dies, so none is ever left behind.

Rule: a lock file is never deleted. Somebody may be waiting for it, and would then hold a lock nobody else
sees.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["exclusive", "shared", "try_exclusive"]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock, and hold it alone."""
    with _opened(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Wait until nobody holds the lock alone, and hold it together with others."""
    with _opened(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def try_exclusive(path: Path) -> IO[str] | None:
    """The open lock file, locked, or None when somebody has it; a child process may inherit it."""
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _opened(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a")
