"""Divides a range of time into spans, by which published messages are counted.

Rule: the spans are chosen before the messages are read, so that one pass counts by span and by everything else.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["OUTSIDE", "Spans", "spans_of"]

#: The number that stands for a span if a message's time lies outside of all spans.
OUTSIDE = -1
#: The most spans that there may be: each is a column on a page.
_MOST = 120
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


class Spans(NamedTuple):
    """`number` spans of `step_s` seconds from `begins_s` on (seconds since 1970)."""

    begins_s: int
    step_s: int
    number: int

    def of(self, time: Column) -> Column:
        """Returns the number of the span in which a time lies, or `OUTSIDE`."""
        found = F.floor((F.unix_seconds(time) - self.begins_s) / self.step_s)
        return F.when(found.between(0, self.number - 1), found).otherwise(F.lit(OUTSIDE)).cast("int")


def spans_of(first_ms: int, last_ms: int) -> Spans:
    """Returns spans that cover these times: at most 120, which begin at round times."""
    first, last = first_ms // 1000, max(first_ms, last_ms) // 1000
    weeks = 7 * 86_400
    step = next((each for each in _STEPS if _count(first, last, each) <= _MOST), weeks)
    while _count(first, last, step) > _MOST:
        step += weeks
    return Spans(first // step * step, step, _count(first, last, step))


def _count(first: int, last: int, step: int) -> int:
    return last // step - first // step + 1
