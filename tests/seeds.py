"""Which seeds a search takes: in CI a few fixed ones and a few of the day, in `just deep` ten times as many of both.

KAFKA_PUBSUB_DAY=20261125 takes the seeds of that day; each run prints its day at the head.
KAFKA_PUBSUB_DEEP=1 is set by `just deep`, and makes the rounds of `tests/faults` longer, too.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

__all__ = ["DAY", "DEEP", "fixed", "of_the_day"]

#: Whether the run may take hours.
DEEP = bool(os.environ.get("KAFKA_PUBSUB_DEEP"))
#: The day, as a number. Workers and processes inherit it, so that midnight changes nothing.
DAY = int(os.environ.setdefault("KAFKA_PUBSUB_DAY", f"{datetime.now(UTC):%Y%m%d}"))
#: How many times as many seeds a deep run takes.
TIMES = 10
#: Seeds of two days never meet.
APART = 1_000_000


def fixed(count: int, first: int = 0) -> range:
    """The same seeds in every run."""
    return range(first, first + _as_many(count))


def of_the_day(count: int) -> range:
    """Other seeds each day."""
    return range(DAY * APART, DAY * APART + _as_many(count))


def _as_many(count: int) -> int:
    return count * TIMES if DEEP else count
