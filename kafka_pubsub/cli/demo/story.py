"""The events of the demo: what some users of a shop do, one ordering key for each user.

Rules
1. The seed decides everything: which user acts next, and what.
2. A user's events are numbered from 0 without gaps; the number is what the ledger judges the order by.
3. A few users do most of it, as in real life, so some keys are always busy.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Event", "story", "toss", "user_name"]

#: What may follow what. Every path leads back to `login`, so a story can go on for ever.
_NEXT = {
    "login": ("page_view", "search"),
    "page_view": ("page_view", "search", "add_to_cart", "logout"),
    "search": ("page_view", "search", "add_to_cart"),
    "add_to_cart": ("page_view", "add_to_cart", "order"),
    "order": ("payment",),
    "payment": ("page_view", "logout"),
    "logout": ("login",),
}


class Event(NamedTuple):
    """One thing that one user did."""

    user: int
    sequence: int
    kind: str

    @property
    def key(self) -> str:
        """Returns the ordering key of the event."""
        return user_name(self.user)

    def body(self) -> bytes:
        """Returns the data of the message."""
        return json.dumps({"user": self.key, "sequence": self.sequence, "event": self.kind}).encode()


def user_name(user: int) -> str:
    """Returns the ordering key of a user."""
    return f"user-{user:03}"


def story(messages: int, users: int, seed: int) -> Iterator[Event]:
    """Yields all events, in the order in which they happen."""
    random_source = random.Random(seed)
    weights = [1 / (1 + user / 8) for user in range(users)]
    # Every user acts at least once while there are events left.
    first = list(range(users))
    random_source.shuffle(first)
    cast = [*first[:messages], *random_source.choices(range(users), weights, k=max(0, messages - users))]
    next_sequence = [0] * users
    last_kind = ["logout"] * users
    for user in cast:
        last_kind[user] = random_source.choice(_NEXT[last_kind[user]])
        yield Event(user, next_sequence[user], last_kind[user])
        next_sequence[user] += 1


def toss(seed: int, key: str, sequence: int, attempt: int) -> float:
    """Returns a number from 0 to 1 that the seed decides for this delivery."""
    return zlib.crc32(f"{seed}/{key}/{sequence}/{attempt}".encode()) / 2**32
