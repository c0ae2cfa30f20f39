"""A record as the log's client returns it, seen through three methods only, so that nothing is copied."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Record"]


class Record(Protocol):
    """A record of the log; `len()` is the size of its body."""

    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def __len__(self) -> int: ...
