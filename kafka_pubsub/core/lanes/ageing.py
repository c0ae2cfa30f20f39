"""Which priorities have been passed over for too long, and how often they may go out of turn.

Rules
1. A priority is passed over from the moment at which a higher one goes while it has a head. After `bound` seconds it is
   aged. It begins anew once it goes in turn, or is empty.
2. Of ten messages one may go out of turn. The others go in turn.
3. The aged priority that has waited longest goes first. After it went out of turn, it is still aged, and waits behind
   the other aged ones: so one with many messages gets its share, and not one message in `bound` seconds.
"""

from __future__ import annotations

from kafka_pubsub.errors import InvariantViolated

__all__ = ["BOUND", "SHARE", "Ageing"]

#: Seconds for which a head may be passed over, unless told otherwise.
BOUND = 5.0
#: Of so many messages one may go out of turn.
SHARE = 10

NEVER = float("inf")


class Ageing:
    """The priorities that are passed over; `bound`: seconds after which they are aged, None: never."""

    def __init__(self, bound: float | None) -> None:
        self._bound = bound
        #: Since when each priority is passed over, and how many messages went out of turn when it last did.
        self.passed: dict[int, tuple[float, int]] = {}
        # Messages in turn since the last one out of turn, that one included; and how many went out of turn.
        self._since = SHARE
        self._served = 0

    @property
    def share_left(self) -> int:
        """How many messages go in turn before one may go out of turn."""
        return SHARE - self._since

    def aged(self, below: int, now: float) -> list[int]:
        """Returns the aged priorities below this one, the first to go first."""
        if self._bound is None or not self.passed:
            return []
        found = [
            (since, served, -number)
            for number, (since, served) in self.passed.items()
            if number < below and since + self._bound <= now
        ]
        return [-number for _, _, number in sorted(found)]

    def next_at(self, now: float) -> float:
        """Returns when the next priority becomes aged."""
        if self._bound is None or not self.passed:
            return NEVER
        times = (since + self._bound for since, _ in self.passed.values())
        return min((time for time in times if time > now), default=NEVER)

    def pass_over(self, number: int, now: float) -> None:
        """A higher priority went while this one had a head."""
        self.passed.setdefault(number, (now, 0))

    def go_in_turn(self, number: int, count: int) -> None:
        """So many messages of this priority went in turn."""
        self._since = min(SHARE, self._since + count)
        self.passed.pop(number, None)

    def go_out_of_turn(self, number: int, now: float) -> None:
        """A message of this aged priority went out of turn."""
        self._since = 1
        self._served += 1
        self.passed[number] = (now - (self._bound or 0.0), self._served)

    def forget(self, number: int) -> None:
        """The priority is empty, or gone."""
        self.passed.pop(number, None)

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        if not 0 < self._since <= SHARE:
            raise InvariantViolated(f"{self._since} messages since one went out of turn")
