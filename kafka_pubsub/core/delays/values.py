"""What passes through a router: what came in, what waits, and where it goes.

All times are milliseconds since the epoch. `record` is the log's own record, handed through untouched.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_pubsub.model import StoredRecord

__all__ = ["BEFORE_ALL", "TO_DEAD", "TO_HOME", "Came", "Key", "Move", "Tick", "Waiting"]

#: When something is handled: its time, and the offset at which the message came in.
Key = tuple[int, int]

#: The key before all keys.
BEFORE_ALL: Key = (-1, -1)

#: Where a move goes, if not to the tier of that number.
TO_HOME, TO_DEAD = -1, -2


class Came(NamedTuple):
    """A message of the log of ingest: due at a time, or so long after it came in.

    `home`: the topic that it is for; None: the record is none of ours.
    """

    offset: int
    home: str | None
    due: int | None
    delay: int | None
    record: StoredRecord


class Tick(NamedTuple):
    """A record of the log of ingest that says what time it is."""

    offset: int
    time: int


class Waiting(NamedTuple):
    """A message between its coming in and its delivery; so are the records of a tier read.

    `at` is when it leaves the place where it is, `offset` the one at which it came in, `left` how many whole seconds it
    still spends in tiers after this place, `position` its own place in the log that it was read from.
    """

    at: int
    offset: int
    due: int
    left: int
    home: str | None
    position: int
    record: StoredRecord


#: What a router wants written: the tier's number, `TO_HOME` or `TO_DEAD`, and the message.
Move = tuple[int, Waiting]
