"""A queue with a thread of its own that works off its items.

Rules
1. The thread starts with the first item. It is a daemon: the interpreter's exit doesn't wait for it.
2. `close` puts None: items that were put before are worked off. A thread that starts after `close` finds the None too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["ThreadedQueue"]

Item = TypeVar("Item")


class ThreadedQueue(Generic[Item]):
    """A queue of items for `work`, which gets items until it gets None."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work = work
        self._name = name
        self._items: SimpleQueue[Item | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, item: Item) -> None:
        """Adds an item; any thread may call this."""
        self._items.put(item)
        if self._thread is None:
            self._start()

    def get(self, timeout: float | None = None) -> Item | None:
        """Returns the next item to `work`; raises `queue.Empty` after `timeout` seconds."""
        return self._items.get(timeout=timeout)

    def worked_elsewhere(self) -> bool:
        """Returns whether the queue has a thread that isn't the caller's."""
        return self._thread is not None and self._thread is not threading.current_thread()

    def close(self, timeout: float) -> bool:
        """Ends the thread after the items put so far; returns False if that takes longer than `timeout` seconds."""
        self._items.put(None)
        thread = self._thread
        if thread is not None and self.worked_elsewhere():
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
