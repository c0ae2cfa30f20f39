"""Messages that wait, for the tests of a router's state."""

from __future__ import annotations

from typing import cast

from kafka_pubsub.delays.values import UNWRITTEN, Waiting
from kafka_pubsub.model import StoredRecord

__all__ = ["wait"]


def wait(
    due: int, offset: int, *, position: int = UNWRITTEN, target: int = -1, home: str | None = "h"
) -> Waiting:
    """A message that is due at a time and came in at an offset; `position`: its place in the log of its tier."""
    return Waiting(due, offset, due, 0, home, position, cast("StoredRecord", b""), target)
