"""What is wrong with single partitions of a service, when each is tried again, and how long it goes alone.

Rules
1. What failed is tried again after a pause, which is doubled up to `_LONGEST_PAUSE` while it fails. A transaction whose
   ending isn't known doubles nothing: it may be stored.
2. For `ALONE` seconds after a failure a partition goes in transactions of its own.
3. Where a transaction got no answer in time, the next is half as large. It may be twice as large again after one that
   was quick, or after `ALONE` seconds without a failure.
4. An error is said until records were stored: positions alone that are stored heal nothing that wasn't written.
5. Until then it goes alone too, also after the group gave it away and back, and under the service's next engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kafka_pubsub.services.sending import Share

__all__ = ["ALONE", "Trouble", "Troubles"]

#: Seconds that a partition goes alone after a failure.
ALONE: Final = 10.0
#: Seconds before the next try: doubled up to the second while it fails.
_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
#: The smallest part of a whole transaction.
_LEAST: Final = 1 / 1024


@dataclass(eq=False)
class Trouble:
    """What is wrong with one partition. `error`: why it waits, empty once it goes on."""

    error: str
    failures: int = 0
    #: When it is tried again, and until when it goes alone.
    again_at: float = 0.0
    alone_until: float = 0.0
    #: Whether it waits to be made anew.
    parked: bool = True
    #: Records weren't stored and are to be written again.
    unstored: bool = False
    #: The part of a whole transaction that it may fill.
    part: float = 1.0
    #: Whether the log can say what is committed.
    settled: Callable[[], bool] = lambda: True


class Troubles:
    """The partitions with which something is wrong, or was a moment ago."""

    def __init__(self) -> None:
        self._of: dict[Share, Trouble] = {}

    def fail(self, share: Share, error: str, *, unknown: bool = False) -> Trouble:
        """Something failed, or its ending is unknown: the partition is parked."""
        trouble, now = self._of.setdefault(share, Trouble(error)), time.monotonic()
        trouble.error, trouble.parked = error, True
        trouble.again_at = now + min(_LONGEST_PAUSE, _PAUSE * 2**trouble.failures)
        trouble.failures = min(trouble.failures + (not unknown), 20)
        trouble.alone_until = trouble.again_at + ALONE
        return trouble

    def halve(self, trouble: Trouble, filled: float) -> None:
        """A transaction got no answer in time, of which this part was filled."""
        trouble.part = max(_LEAST, min(trouble.part, filled) / 2)

    def stored(self, share: Share, records: int, *, quick: bool, waits: bool = False) -> None:
        """A transaction of the partition was stored; `waits` (default False): records for some topic are held back."""
        trouble = self._of.get(share)
        if trouble is None:
            return
        if quick and records:
            trouble.part = min(1.0, 2 * trouble.part)
        if not waits and (records or not trouble.unstored):
            trouble.error, trouble.failures, trouble.unstored = "", 0, False

    def begun(self, share: Share) -> None:
        """The partition was made anew."""
        if share in self._of:
            self._of[share].parked = False

    def forget(self, shares: Iterable[Share]) -> None:
        """They aren't ours any more; should they come back, they go alone all the same."""
        now = time.monotonic()
        for share in shares:
            trouble = self._of.pop(share, None)
            if trouble is not None and (trouble.unstored or trouble.part < 1.0 or now < trouble.alone_until):
                self._of[share] = Trouble(
                    "",
                    parked=False,
                    alone_until=trouble.alone_until,
                    unstored=trouble.unstored,
                    part=trouble.part,
                )

    def forget_all(self) -> None:
        """None of them are ours any more."""
        self.forget(list(self._of))

    def parked(self) -> dict[Share, Trouble]:
        """Those that wait to be made anew."""
        return {share: each for share, each in self._of.items() if each.parked} if self._of else {}

    def alone(self) -> Collection[Share]:
        """Those that go alone now; after a while they don't any more."""
        if not self._of:
            return ()
        now = time.monotonic()
        for share, each in list(self._of.items()):
            if each.parked or each.error or each.unstored or now < each.alone_until:
                continue
            if each.part == 1.0:
                del self._of[share]
            else:
                each.part, each.alone_until = min(1.0, 2 * each.part), now + ALONE
        return self._of.keys()

    def part_of(self, share: Share) -> float:
        """Returns the part of a whole transaction that the partition may fill."""
        trouble = self._of.get(share)
        return 1.0 if trouble is None else trouble.part

    @property
    def error(self) -> str:
        """What is wrong, with one partition and how many others; empty: nothing is."""
        wrong = {share: each.error for share, each in sorted(self._of.items()) if each.error}
        if not wrong:
            return ""
        first = next(iter(wrong.values()))
        more = len(wrong) - 1
        return f"{first} (and {more} more partitions wait)" if more else first
