"""Decides how loudly a trouble that repeats is told.

Theory. Most troubles pass by themselves within seconds (a connection that breaks, a coordinator that moves), and many
parts of a process notice them at once and again and again. A person needs one warning if it lasts, and then one in a
while.

Rules
1. A trouble is told quietly at first, as a warning once it has lasted, and then once in `every` seconds.
2. A trouble that wasn't noticed for `every` seconds has passed: the next time is a first time.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["LastingTroubles", "Loudness"]

#: How many troubles are remembered; a cluster in trouble has a few for each broker and subscription.
_REMEMBERED = 1024


class Loudness(Enum):
    """How a trouble is told."""

    QUIETLY = auto()
    AS_WARNING = auto()
    NOT_AGAIN = auto()


@dataclass
class _Trouble:
    since: float
    noticed_at: float
    warned_at: float | None = None
    #: How often it was noticed, and not told, since it was last told.
    left_out: int = 0


class LastingTroubles:
    """The troubles of a process, each under a key of its caller's."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._known: dict[Hashable, _Trouble] = {}

    def notice(self, trouble: Hashable, now: float, lasting: float) -> tuple[Loudness, int]:
        """Returns how to tell it, and how often it was left out since it was last told.

        `lasting`: seconds after which it is worth a warning; 0: at once.
        """
        known = self._known.get(trouble)
        first = known is None or now - known.noticed_at > self._every
        if known is None or first:
            known = self._remember(trouble, now)
        known.noticed_at = now
        due = known.warned_at is None or now - known.warned_at >= self._every
        if due and now - known.since >= lasting:
            known.warned_at = now
            return Loudness.AS_WARNING, self._taken(known)
        if first:
            return Loudness.QUIETLY, 0
        known.left_out += 1
        return Loudness.NOT_AGAIN, 0

    def _remember(self, trouble: Hashable, now: float) -> _Trouble:
        self._known.pop(trouble, None)  # so that the order is that of the first times
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[trouble] = _Trouble(now, now)
        return self._known[trouble]

    @staticmethod
    def _taken(known: _Trouble) -> int:
        left_out, known.left_out = known.left_out, 0
        return left_out
