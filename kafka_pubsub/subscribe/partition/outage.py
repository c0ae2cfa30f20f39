"""Notices that most deliveries fail, and slows to a probe: then the callbacks' backend is down, not the messages bad.

Theory. Of the last seconds the detector counts acks and which messages failed (a message that fails ten times counts
once). When more have failed, it probes: a message at a time, once a second. Probes that succeed, without a fresh one
that fails in between, end the outage.

Rules
1. Few failures prove nothing: a topic with a bad message is no outage.
2. While it probes, attempts are used up only for a message in a while: a topic full of bad messages gets through,
   and an outage of an hour doesn't dead-letter the whole topic.
3. The outage ends by itself, and counting begins anew.
4. The detector is looked at soon after each ack or failure, and when `due_at` says so; nothing changes in between.
5. Every other probe is a message that hasn't failed yet, if there is one (home's before a parked one), and only such
   failures show that the outage goes on. Else a few dozen messages that always fail would be probed before all others,
   for ever.
"""

from __future__ import annotations

from kafka_pubsub.errors import InvariantViolated

__all__ = ["DEAD_LETTERS_EVERY", "ENOUGH", "PROBE_EVERY", "RECOVERED", "WINDOW", "Outage"]

#: Seconds of a window; the current window and the window before count.
WINDOW = 5.0
#: Different messages that must have failed before an outage.
ENOUGH = 20
#: Seconds between probes, and probes in a row that must succeed.
PROBE_EVERY = 1.0
RECOVERED = 3
#: Seconds between messages whose attempts are used up during probes.
DEAD_LETTERS_EVERY = 10.0


class Outage:
    """A detector of outages in the deliveries of a partition."""

    def __init__(self) -> None:
        #: True while messages are tried singly.
        self.probing = False
        self._acked = [0, 0]
        self._failed: list[set[int]] = [set(), set()]
        self._window_ends = 0.0
        self._next_probe = 0.0
        self._in_a_row = 0
        self._next_death = 0.0
        self._turn = False

    @property
    def fresh(self) -> bool:
        """Whether the next probe is a message that hasn't failed yet."""
        return self.probing and self._turn

    def due_at(self) -> float | None:
        """Returns when to look though nothing happens: the last counts expire then. None: nothing was counted."""
        counted = any(self._acked) or any(self._failed)
        return self._window_ends if counted and not self.probing else None

    def acked(self, count: int) -> None:
        """Counts acked messages."""
        self._acked[0] += count

    def failed(self, origin: int, *, first: bool = True) -> None:
        """Counts a message that was nacked, or whose deadline passed; `first`: for the first time."""
        self._failed[0].add(origin)
        if first:
            self._in_a_row = 0

    def look(self, now: float) -> bool:
        """Lets time pass; returns True if an outage began or ended just now."""
        if self.probing:
            return self._look_up()
        if now >= self._window_ends:
            self._acked = [0, self._acked[0]]
            self._failed = [set(), self._failed[0]]
            self._window_ends = now + WINDOW
        most = len(self._failed[0]) + len(self._failed[1])
        if most < ENOUGH or most <= sum(self._acked):
            return False  # without a look at which failed in both windows
        failed = len(self._failed[0] | self._failed[1])
        if failed < ENOUGH or failed <= sum(self._acked):
            return False
        self.probing = True
        self._begin_anew()
        self._next_probe = now + PROBE_EVERY
        self._next_death = now + DEAD_LETTERS_EVERY
        return True

    def _look_up(self) -> bool:
        self._in_a_row += self._acked[0]
        self._acked[0] = 0
        if self._in_a_row < RECOVERED:
            return False
        self.probing = False
        self._begin_anew()
        return True

    def _begin_anew(self) -> None:
        self._acked = [0, 0]
        self._failed = [set(), set()]
        self._in_a_row = 0

    def allows(self, in_flight: int, now: float) -> bool:
        """Returns whether a delivery may begin."""
        return not self.probing or (in_flight == 0 and now >= self._next_probe)

    def began(self, now: float) -> None:
        """Takes note that a delivery began."""
        self._next_probe = now + PROBE_EVERY
        self._turn = not self._turn

    def next_probe(self) -> float | None:
        """Returns when the next probe may begin; None: deliveries aren't held back."""
        return self._next_probe if self.probing else None

    def may_use_up(self, now: float) -> bool:
        """Returns whether a message may now lose its last attempt: only once in a while during probes."""
        if not self.probing:
            return True
        if now < self._next_death:
            return False
        self._next_death = now + DEAD_LETTERS_EVERY
        return True

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self.probing and self._in_a_row >= RECOVERED:
            raise InvariantViolated("it probes though enough probes have succeeded")
