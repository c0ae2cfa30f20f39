"""What a round is, as values: written on the command line of every process that takes part in it.

Rule: everything random follows from the seed, so that a round can be done again; what the machine adds (who comes
first) can't be.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

__all__ = ["ConsumerPlan", "Poison", "PublisherPlan", "RoundPlan"]

Poison = Literal["raises", "hangs", "kills"]

#: Early, so that the end of poison is seen in a short round.
FIRST_POISONED = 40


@dataclass(frozen=True)
class RoundPlan:
    """A single round. `seconds` is how long is published and broken; settling comes on top."""

    fault: str
    seed: int = 1
    seconds: float = 60.0
    #: Messages a second, of all publishers together.
    rate: float = 400.0
    publishers: int = 2
    consumers: int = 3
    partitions: int = 6
    #: Of each publisher; the hottest gets about a sixth of its messages.
    keys: int = 200
    nack_percent: float = 5.0
    #: Seconds until everything that was published has to be acked.
    settle: float = 120.0
    #: Seconds of calm after a burst, at most; half of that at least. A long round is to get on between its faults.
    calm: float = 2.0
    #: Each publisher's 40th message is poison, in a round with poison, and one in so many after it.
    poison_every: int = 50_000


@dataclass(frozen=True)
class _ProcessPlan:
    bootstrap: str
    topic: str
    #: The directory of histories.
    told: str
    #: What the process makes when it has come to work; others of its files have that name with another ending.
    ready: str
    seed: int

    def line(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> Self:
        """What `line()` wrote."""
        return cls(**json.loads(line))

    @property
    def path(self) -> Path:
        """`ready` as a path."""
        return Path(self.ready)


@dataclass(frozen=True)
class PublisherPlan(_ProcessPlan):
    """A single publisher's part. No two publishers share a key, so the order of a key is a single publisher's."""

    name: str = "p0"
    rate: float = 200.0
    seconds: float = 60.0
    keys: int = 200
    #: Kinds of poison, in turn; none: no message is poison.
    poison: tuple[Poison, ...] = ()
    poison_every: int = 50_000
    #: Priorities of the topic; messages take one at random, delayed ones one for each key.
    priorities: int = 1
    #: Per cent of messages that are delayed; these have keys of their own.
    delayed_percent: float = 0.0

    def poison_of(self, number: int) -> Poison | None:
        """What the attribute `poison` of that message says; None: it has none."""
        nth, rest = divmod(number - FIRST_POISONED, self.poison_every)
        return self.poison[nth % len(self.poison)] if self.poison and rest == 0 and nth >= 0 else None


@dataclass(frozen=True)
class ConsumerPlan(_ProcessPlan):
    """A single consumer's part. Handlers take up to `handler` seconds, some up to `slow_handler`."""

    subscription: str = ""
    nack_percent: float = 5.0
    handler: float = 0.01
    slow_percent: float = 0.0
    slow_handler: float = 0.0
    #: Attempts up to which messages that aren't poison may be nacked: they aren't to use them all up.
    last_nack: int = 3
    #: Seconds that a handler of poison that hangs takes, beyond the round's deadline and extension.
    hang: float = 8.0
    #: A directory in which those who die on purpose leave a mark.
    deaths: str = ""
