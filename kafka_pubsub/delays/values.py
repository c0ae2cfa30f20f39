"""What passes through a router: what came in, what waits, and where it goes.

All times are milliseconds since the epoch. `record` is the log's own record, handed through untouched.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from kafka_pubsub.model import StoredRecord

__all__ = [
    "BEFORE_ALL",
    "TO_DEAD",
    "TO_HOME",
    "TO_NOTHING",
    "UNWRITTEN",
    "Came",
    "Key",
    "Move",
    "Tick",
    "Waiting",
    "number_of",
]

#: When something is handled: its time, and the offset at which the message came in.
Key = tuple[int, int]

#: The key before all keys.
BEFORE_ALL: Key = (-1, -1)

#: The position of a message that is put into a tier and isn't written yet.
UNWRITTEN = -1

#: Where a move goes, if not to the tier of that number. To nothing: the message was cancelled.
TO_HOME, TO_DEAD, TO_NOTHING = -1, -2, -3


class Came(NamedTuple):
    """A message of the log of ingest: due at a time, or so long after it came in.

    `home`: the topic that it is for; None: the record is none of ours. A request to cancel has the `target`, the offset
    at which the message came in, and that message's `due`. `stamp`: the broker's time; None: no broker stamped it.
    """

    offset: int
    home: str | None
    due: int | None
    delay: int | None
    record: StoredRecord
    target: int = -1
    stamp: int | None = None


class Tick(NamedTuple):
    """A record without content, which lets the time of ingest go on; `stamp` as in `Came`."""

    offset: int
    stamp: int | None


class Waiting(NamedTuple):
    """A message between its coming in and its delivery; so are the records of a tier read.

    `at` is when it leaves the place where it is, `offset` the one at which it came in, `left` how many whole seconds it
    still spends in tiers after this place, `position` its own place in the log that it was read from. `target`: as in
    `Came`; -1: it is a message.
    """

    at: int
    offset: int
    due: int
    left: int
    home: str | None
    position: int
    record: StoredRecord
    target: int = -1


#: What a router wants done: the tier's number, `TO_HOME`, `TO_DEAD` or `TO_NOTHING`, and the message.
Move = tuple[int, Waiting]


def number_of(home: str) -> int:
    """Returns a short name of a home. Two homes of one number wait for each other, and nothing else comes of it."""
    return crc32(home.encode())
