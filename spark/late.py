"""What came too late for a watermark, in a table of its own.

Theory. Spark leaves such messages out, counts them, and hands them to no function. Which they are follows from its
logs: in batch N those whose time isn't after the watermark with which batch N - 1 was planned. So the offsets of a
batch are read once more, and what is late among them is added to the table.

Rules
1. This is done before the batch is committed, under its number: a batch that is repeated adds nothing twice.
2. Each batch is read twice, so it is done only for a job that is asked to.
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
    #: What is compared with the watermark: the time itself, or the end of its window.
    until: Column

    def keep(self, run: Run, number: int) -> None:
        """Adds a batch's late messages: the columns of `messages`, `time`, `watermark` and `date`."""
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
