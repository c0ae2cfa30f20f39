"""Keeps messages that came too late for a watermark in a table.

Theory. Spark leaves such messages out, counts them, and passes them to no function. Spark's logs say which they are:
in batch N the messages whose time isn't after the watermark with which batch N - 1 was planned. So this module reads
the offsets of a batch once more, and adds the late messages among them to the table.

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
        """Adds a batch's late messages, with the columns of `messages` and `time`, `watermark` and `date`."""
        before, now = (admission.batch_of(run.checkpoint, each) for each in (number - 1, number))
        if before is None or now is None or before.watermark <= 0 or before.ends == now.ends:
            return
        records = raw_records(
            run.checkpoint.spark,
            self.topic,
            run.context.connection,
            starting=before.ends,
            ending=now.ends,
            lost=run.streaming.lost,
            only=True,
        )
        watermark = F.timestamp_millis(F.lit(before.watermark))
        found = self.timed(rows(records)).where(self.until <= watermark)
        told = {"watermark": watermark, "date": F.to_date("publish_time")}
        run.append(found.withColumns(told), self.table, number)
