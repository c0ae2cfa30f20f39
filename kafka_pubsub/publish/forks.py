"""Tells all publishers of a process that they are in a forked child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["tell_of_forks"]


class _Forkable(Protocol):
    def forked(self) -> None: ...


# All publishers of the process.
_ALL: weakref.WeakSet[_Forkable] = weakref.WeakSet()


def tell_of_forks(publisher: _Forkable) -> None:
    """Calls `forked` in a child, as long as the publisher lives."""
    _ALL.add(publisher)


def _after_fork() -> None:
    for publisher in list(_ALL):
        publisher.forked()


os.register_at_fork(after_in_child=_after_fork)
