"""Which priorities have been passed over for too long, and how often they may go out of turn.

Rules
1. A priority is passed over from the moment at which a higher one goes while it has a head. After `bound` seconds it is
   aged. It begins anew once it goes in turn, or is empty.
2. Of ten messages one may go out of turn. The others go in turn.
3. The aged priority that has waited longest goes first. After it went out of turn, it is still aged, and waits behind
   the other aged ones: so one with many messages gets its share, and not one message in `bound` seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.errors import InvariantViolated

__all__ = ["SHARE", "Ageing"]

#: Of so many messages one may go out of turn.
SHARE = 10

NEVER = float("inf")


class Ageing:
    """The priorities that are passed over; `bound`: seconds after which they are aged, None: never."""

    def __init__(self, bound: float | None) -> None:
        self._bound = bound
        #: Since when each priority is passed over, and how many messages went out of turn when it last did.
        self.passed: dict[int, tuple[float, int]] = {}
        #: When the next priority becomes aged, as last found; in the past after a change.
        self.next_at = -NEVER
        self._aged: list[int] = []
        # Messages in turn since the last one out of turn, that one included; and how many went out of turn.
        self._since = SHARE
        self._served = 0

    @property
    def share_left(self) -> int:
        """How many messages go in turn before one may go out of turn."""
        return SHARE - self._since

    def aged(self, now: float) -> Sequence[int]:
        """Returns the aged priorities, the first to go first; holds until `next_at`."""
        if now >= self.next_at:
            self._look(now)
        return self._aged

    def _look(self, now: float) -> None:
        bound = NEVER if self._bound is None else self._bound
        self._aged = sorted(
            (number for number, (since, _) in self.passed.items() if since + bound <= now),
            key=lambda number: (self.passed[number], -number),
        )
        times = (since + bound for since, _ in self.passed.values())
        self.next_at = min((time for time in times if time > now), default=NEVER)

    def pass_over(self, number: int, now: float) -> None:
        """Notes that a higher priority was served while this one had a message ready."""
        if number not in self.passed:
            self.passed[number] = (now, 0)
            self.next_at = -NEVER

    def go_in_turn(self, number: int, count: int) -> None:
        """So many messages of this priority went in turn."""
        self._since = min(SHARE, self._since + count)
        self.forget(number)

    def go_out_of_turn(self, number: int, now: float) -> None:
        """A message of this aged priority went out of turn."""
        self._since = 1
        self._served += 1
        self.passed[number] = (now - (self._bound or 0.0), self._served)
        self.next_at = -NEVER

    def forget(self, number: int) -> None:
        """The priority is empty, or gone."""
        if self.passed.pop(number, None) is not None:
            self.next_at = -NEVER

    def check(self) -> None:
        """Raises `InvariantViolated` if it contradicts itself."""
        if not 0 < self._since <= SHARE:
            raise InvariantViolated(f"{self._since} messages since one went out of turn")
        if self.next_at > -NEVER and not set(self._aged) <= self.passed.keys():
            raise InvariantViolated(f"{self._aged} are aged, and {self.passed} are passed over")
