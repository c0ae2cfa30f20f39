"""What the parts of this process have counted: its publishers, its streams and its services.

Theory. A part counts as it works, with plain additions, once for a run of messages. It is asked only when a reading is
wanted (`observe/metrics.py` asks at a scrape), so counting costs the same whether anything reads or not.

Rules
1. What a part has counted stays when the part has ended: a sum that fell would look like a restart of the process.
2. A part that raises when it is read is left out, and the others are read.
3. A forked child begins with no parts.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["BOUNDS", "PARTS", "Part", "Parts", "Reading", "Times", "merged"]

_log = logging.getLogger("kafka_pubsub.metrics")

#: The upper bounds of a histogram's ranges, in seconds.
BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0),
)


@dataclass
class Times:
    """How often something took how long: `counts` by range (see `BOUNDS`, and one beyond), and all seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


@dataclass
class Reading:
    """What a part has counted (`counts`, `times`: these only grow), and how it is now (`gauges`), under its labels."""

    labels: Mapping[str, str]
    counts: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)


class Part(Protocol):
    """A part of the process that counts."""

    def readings(self) -> Iterable[Reading]:
        """Returns what it has counted; any thread may call, and the call waits for nothing."""


class Parts:
    """The parts of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[Part] = weakref.WeakSet()
        self._past: list[Reading] = []
        #: How often a part couldn't be read.
        self.failures = 0

    def add(self, part: Part) -> None:
        """Takes a part that begins."""
        with self._lock:
            self._open.add(part)

    def end(self, part: Part) -> None:
        """Keeps what a part has counted that has ended; does nothing the second time."""
        with self._lock:
            if part in self._open:
                self._open.discard(part)
                ended = [Reading(each.labels, each.counts, {}, each.times) for each in self._read(part)]
                self._past = merged([*self._past, *ended])

    def read(self) -> list[Reading]:
        """Returns the readings of all parts, one for each set of labels."""
        with self._lock:
            return merged([*self._past, *(each for part in list(self._open) for each in self._read(part))])

    def forget(self) -> None:
        """Forgets all parts, in a child."""
        self._lock = threading.Lock()
        self._open, self._past = weakref.WeakSet(), []

    def _read(self, part: Part) -> list[Reading]:
        try:
            return list(part.readings())
        except Exception:
            self.failures += 1
            level = logging.WARNING if self.failures == 1 else logging.DEBUG
            _log.log(level, "%s can't be read; its figures are left out", type(part).__name__, exc_info=True)
            return []


def merged(readings: Iterable[Reading], highest: frozenset[str] = frozenset()) -> list[Reading]:
    """Returns one reading for each set of labels: the sums, and of the gauges in `highest` the highest."""
    found: dict[tuple[tuple[str, str], ...], Reading] = {}
    for each in readings:
        key = tuple(sorted(each.labels.items()))
        before = found.get(key)
        found[key] = each if before is None else _merge(before, each, highest)
    return list(found.values())


def _merge(one: Reading, other: Reading, highest: frozenset[str]) -> Reading:
    counts = {
        name: one.counts.get(name, 0) + other.counts.get(name, 0) for name in {**one.counts, **other.counts}
    }
    gauges = {**one.gauges, **other.gauges}
    for name in one.gauges.keys() & other.gauges.keys():
        values = one.gauges[name], other.gauges[name]
        gauges[name] = max(values) if name in highest else sum(values)
    times = {**one.times, **other.times}
    for name in one.times.keys() & other.times.keys():
        pair = one.times[name], other.times[name]
        times[name] = Times([a + b for a, b in zip(*(each.counts for each in pair), strict=True)])
        times[name].seconds = sum(each.seconds for each in pair)
    return Reading(one.labels, counts, gauges, times)


#: The parts of this process.
PARTS: Final = Parts()

os.register_at_fork(after_in_child=PARTS.forget)
