"""A partition's answers about keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition.key_line import Entry

__all__ = ["KeyView", "ParkedKey"]


class KeyView(NamedTuple):
    """The waiting, running and moving messages of a key."""

    #: Whether a lease runner has the key, or an old callback.
    blocked: bool
    #: The origins that are on their way into the retry partition, or to the dead letters.
    moving: Collection[int]
    #: The origin of its first message that waits in the retry partition; None: none does.
    parked: int | None
    #: That message; None: its body isn't in memory.
    body: Record | None
    #: Its records of home that wait.
    queue: Sequence[Record]

    @property
    def first(self) -> int | None:
        """The origin of the first message that waits, anywhere; None: none waits."""
        origins = [] if self.parked is None else [self.parked]
        return min([*origins, *(each.offset() for each in self.queue[:1])], default=None)


class ParkedKey(NamedTuple):
    """A key that waits: for its time, for a release, or for another lane."""

    key: bytes
    #: The origin of its first message that waits; None: that message is on its way into the retry partition.
    first: int | None
    #: Its first message that waits in the retry partition; None: none does.
    entry: Entry | None
    #: The number of its messages that wait.
    waiting: int
    #: The reason for which its first message waits in another lane; None: it doesn't.
    comes_after: str | None
