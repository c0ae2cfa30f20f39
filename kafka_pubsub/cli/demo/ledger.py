"""Judges the order of the events that the callbacks get.

Theory: for each key the ledger knows the next event that may come. A delivery of anything else is a violation:
an event too far ahead (a gap, an overtaking), one beside another of its key, or, after a nack, any event but the
nacked one. An event that comes again after its ack is a repeat: at least once allows it, so it is counted apart.
Rules: callbacks call `begin` first and `ack` or `nack` last, each before the message's own method, since another
thread may get the message at once. The ledger holds one lock and calls no other object.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Comeback", "Ledger", "Picture"]

# Shown on the screen and in the summary; the count says how many there were.
COMEBACKS_KEPT = 4
VIOLATIONS_KEPT = 5


class Comeback(NamedTuple):
    """A nacked event that was delivered again, before anything later of its key."""

    key: str
    sequence: int
    attempt: int
    waited: float
    #: Later events of the key that were published meanwhile and had to wait.
    held_back: int


class Picture(NamedTuple):
    """The ledger at one moment."""

    published: int
    finished: int
    nacks: int
    redelivered: int
    repeats: int
    violations: int
    in_flight: frozenset[str]
    blocked: frozenset[str]
    #: Keys with events that are published and not finished, the ones above included.
    busy: frozenset[str]
    comebacks: tuple[Comeback, ...]


@dataclass
class _Key:
    published: int = 0
    #: The lowest event that isn't acked.
    next: int = 0
    handling: bool = False
    #: When it was nacked; None: it isn't waiting for a redelivery.
    nacked_at: float | None = None


@dataclass
class Ledger:
    """What was published, delivered, acked and nacked so far, and whether the order held."""

    clock: Callable[[], float] = time.monotonic
    violations: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _keys: dict[str, _Key] = field(default_factory=dict)
    _comebacks: deque[Comeback] = field(default_factory=lambda: deque(maxlen=COMEBACKS_KEPT))
    _published: int = 0
    _finished: int = 0
    _nacks: int = 0
    _redelivered: int = 0
    _repeats: int = 0
    _violations: int = 0

    def published(self, key: str) -> None:
        """Counts one more event of this key that the broker has stored."""
        with self._lock:
            self._published += 1
            self._keys.setdefault(key, _Key()).published += 1

    def begin(self, key: str, sequence: int, attempt: int) -> bool:
        """Records that a callback got this event; False: it was acked before and isn't judged again."""
        with self._lock:
            state = self._keys.setdefault(key, _Key())
            if attempt > 1:
                self._redelivered += 1
            if state.handling:
                self._violation(f"{key} #{sequence} was delivered while another of its key was being handled")
            elif sequence < state.next:
                self._repeats += 1
                return False
            elif sequence > state.next:
                nacked = "nacked and not delivered again" if state.nacked_at else "not finished"
                self._violation(f"{key} #{sequence} was delivered while #{state.next} was {nacked}")
            elif state.nacked_at is not None:
                self._came_back(key, state, sequence, attempt, state.nacked_at)
            state.handling = True
            state.nacked_at = None
            return True

    def ack(self, key: str, sequence: int) -> None:
        """Records that the callback is about to ack the event."""
        with self._lock:
            state = self._keys[key]
            state.handling = False
            state.next = max(state.next, sequence + 1)
            self._finished += 1

    def nack(self, key: str) -> None:
        """Records that the callback is about to nack the event."""
        with self._lock:
            state = self._keys[key]
            state.handling = False
            state.nacked_at = self.clock()
            self._nacks += 1

    def lost(self) -> Mapping[str, int]:
        """Returns the keys with events that were published and never finished, and how many."""
        with self._lock:
            return {key: s.published - s.next for key, s in self._keys.items() if s.published > s.next}

    def picture(self) -> Picture:
        """Returns a consistent view for the screen."""
        with self._lock:
            keys = self._keys.items()
            return Picture(
                self._published,
                self._finished,
                self._nacks,
                self._redelivered,
                self._repeats,
                self._violations,
                in_flight=frozenset(key for key, state in keys if state.handling),
                blocked=frozenset(key for key, state in keys if state.nacked_at is not None),
                busy=frozenset(key for key, state in keys if state.published > state.next),
                comebacks=tuple(self._comebacks),
            )

    def _came_back(self, key: str, state: _Key, sequence: int, attempt: int, nacked_at: float) -> None:
        held_back = max(0, state.published - sequence - 1)
        self._comebacks.append(Comeback(key, sequence, attempt, self.clock() - nacked_at, held_back))

    def _violation(self, text: str) -> None:
        self._violations += 1
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(text)
