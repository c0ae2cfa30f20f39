"""Keeps messages that came too late for a watermark, and those without a time, in a table.

Theory. Spark leaves such messages out, counts them, and passes them to no function. Spark's logs say which they are:
in batch N the messages whose time isn't after the watermark with which batch N - 1 was planned. So this module reads
the offsets of a batch once more, and adds the late messages among them, and those without a time, to the table.

Rules
1. They are written before the batch is committed, with the batch's number, so a repeated batch adds nothing twice.
2. Each batch is read twice, so a job does this only with --late-to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from . import admission
from .tables import Layout, Table
from .transforms.messages import raw_records
from .transforms.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from .streams import Run

__all__ = ["LATE", "Late"]

LATE = Layout("late messages", partitions=("date",), statistics=("ordering_key", "publish_time", "time"))


@dataclass(frozen=True)
class Late:
    """The late messages of one topic and their table."""

    table: Table
    topic: str
    #: Adds `time` to messages.
    timed: Callable[[DataFrame], DataFrame]
    #: The time that is compared with the watermark: `time` itself, or the end of its window.
    until: Column

    def keep(self, run: Run, number: int) -> None:
        """Adds a batch's messages that are late or have no time, with `time`, `watermark` and `date`."""
        before, now = (admission.batch_of(run.checkpoint, each) for each in (number - 1, number))
        # The first batch begins where the topic does.
        begun = {} if before is None else before.ends
        if now is None or begun == now.ends:
            return
        records = raw_records(
            run.checkpoint.spark,
            self.topic,
            run.context.connection,
            starting=begun,
            ending=now.ends,
            lost=run.streaming.lost,
            only=True,
        )
        # There is none before the first batch with a time.
        passed = before.watermark if before is not None and before.watermark > 0 else None
        watermark = F.timestamp_millis(F.lit(passed).cast("bigint"))
        found = self.timed(rows(records)).where((self.until <= watermark) | F.col("time").isNull())
        told = {"watermark": watermark, "date": F.to_date("publish_time")}
        run.append(found.withColumns(told), self.table, number)
