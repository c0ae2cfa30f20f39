"""When a message that wasn't acked is delivered again.

Rules
1. Backoff is exponential with full jitter: between `minimum` and `maximum` the wait before attempt n is drawn
   from the minimum up to `minimum * 2**(n - 2)`, so that many failures at once don't come back at once. A minimum
   of 0 grows as if it were `SOON`.
2. Without a policy a message is delivered again as soon as possible: after `SOON`, so that a callback that always fails
   doesn't keep a processor busy.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["LONGEST_DELAY", "REJECTED", "SOON", "Backoff", "Exhausted", "Policy"]

#: Seconds; short beside any callback worth retrying, long beside a busy loop.
SOON = 0.01
#: Seconds; the longest delay that a nack may ask for.
LONGEST_DELAY = 7 * 86_400
#: In the place of a nack's delay: the callback gave the message up, so it isn't delivered again.
REJECTED = -1.0


class Backoff(NamedTuple):
    """The bounds of the wait before a redelivery, in seconds."""

    minimum: float = SOON
    maximum: float = SOON

    def wait(self, attempt: int, jitter: float) -> float:
        """Returns the wait before delivery `attempt` (2 is the first redelivery); `jitter` is drawn from [0, 1)."""
        ceiling = min(self.maximum, max(self.minimum, SOON) * 2.0 ** min(attempt - 2, 60))
        return self.minimum + jitter * (ceiling - self.minimum)


class Exhausted(Enum):
    """What happens to a message whose attempts are used up."""

    DEAD_LETTER = "dead_letter"
    PARK = "park"


class Policy(NamedTuple):
    """When attempts are used up (0: never), and what then. Crashes that a message is blamed for count as attempts."""

    max_attempts: int = 0
    on_exhausted: Exhausted = Exhausted.DEAD_LETTER

    def used_up(self, deliveries: int) -> bool:
        """Returns whether no further delivery is allowed after so many."""
        return 0 < self.max_attempts <= deliveries

    @property
    def dead_letters(self) -> bool:
        """Whether a message that is given up becomes a dead letter; else it is parked until released."""
        return self.max_attempts > 0 and self.on_exhausted is Exhausted.DEAD_LETTER
