"""Notices when most messages of a topic have the same ordering key.

Theory: messages of a key are delivered one at a time, so such a topic is no faster than one worker, however many
there are, and its operator should know. A sample of the messages (about one in 64) is counted with a few
counters (Misra and Gries): a key without a counter takes a free one; if none is free, every counter goes down by one.
So a counter is never too high, and at most samples / (counters + 1) too low: a key that is reported does have more
than the share `MOST` of the samples, and one that has a tenth more than that is always reported.

Rules
1. The gaps between samples vary: with a fixed gap, keys that alternate could look like one key.
2. Each window of samples is counted by itself, so a key that was hot long ago is forgotten.
3. A key is reported once. Messages without a key count as messages, never as a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.log.records import Record

__all__ = ["HotKey", "HotKeys"]

#: Samples in a window: 512 of one message in 64 are some 32,000 messages, a fraction of a second at full speed.
WINDOW = 512

#: Counters: the estimate is at most a tenth of the window too low.
COUNTERS = 9

#: The share of the samples above which a key carries most of a topic. Not 0.5: with 512 samples, of two keys that
#: take turns one is above that half of the time by chance; 0.6 is four standard deviations away.
MOST = 0.6

#: The gap between samples ranges from half of this to one and a half times this.
MEAN_GAP = 64

#: Reported keys that are remembered; when so many have been hot, one more warning wouldn't help.
REMEMBERED = 16


class HotKey(NamedTuple):
    """A key that carries at least `share` of the messages of a window."""

    key: bytes
    share: float


class HotKeys:
    """A detector of hot keys among the messages of one topic."""

    def __init__(self, window: int = WINDOW, mean_gap: int = MEAN_GAP) -> None:
        self._window = window
        self._mean_gap = mean_gap
        # A linear congruential sequence: the core has no randomness, and any irregular sequence will do.
        self._sequence = 1
        self._skip = 0
        self._samples = 0
        # Key -> samples seen, too low by at most samples / (COUNTERS + 1).
        self._counts: dict[bytes, int] = {}
        self._reported: set[bytes] = set()

    def observe(self, records: Sequence[Record]) -> HotKey | None:
        """Samples the records; returns a hot key that wasn't reported before, if a window ended with one."""
        found = None
        index = self._skip
        while index < len(records):
            found = self._sample(records[index].key()) or found
            index += self._gap()
        self._skip = index - len(records)
        return found

    def _gap(self) -> int:
        self._sequence = (self._sequence * 1103515245 + 12345) % 2**31
        return self._mean_gap // 2 + (self._sequence >> 16) % self._mean_gap + 1

    def _sample(self, key: bytes | None) -> HotKey | None:
        self._samples += 1
        if key is not None:
            self._count(key)
        return self._judge() if self._samples >= self._window else None

    def _count(self, key: bytes) -> None:
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < COUNTERS:
            counts[key] = 1
        else:
            self._counts = {each: count - 1 for each, count in counts.items() if count > 1}

    def _judge(self) -> HotKey | None:
        counts, samples = self._counts, self._samples
        self._counts, self._samples = {}, 0
        key = max(counts, key=counts.__getitem__, default=None)
        if key is None or counts[key] <= samples * MOST or key in self._reported:
            return None
        if len(self._reported) >= REMEMBERED:
            return None
        self._reported.add(key)
        return HotKey(key, counts[key] / samples)

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if len(self._counts) > COUNTERS or any(count < 1 for count in self._counts.values()):
            raise InvariantViolated(f"counters of hot keys are wrong: {self._counts}")
        if not sum(self._counts.values()) <= self._samples < self._window:
            raise InvariantViolated(f"{self._samples} samples don't go with the counts {self._counts}")
