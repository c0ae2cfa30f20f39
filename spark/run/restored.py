"""Refuses to go on with a checkpoint that is older than the tables that its query wrote.

Theory. Delta leaves out a batch whose number it has already (`tables.py`). A checkpoint that was put back from a copy
counts on from the copy, so Delta would take its next batches for repeats, and leave out new messages without an error.

Rule: at a start a table has no batch that the checkpoint hasn't planned, because Spark plans a batch before it is
written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafka_pubsub.errors import FailedPrecondition

from ..base.files import Files
from ..base.spark_session import is_remote
from ..base.tables import last_batch
from . import ownership

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_checkpoint", "refuse_ahead"]


def check_checkpoint(spark: SparkSession, checkpoint: str | os.PathLike[str], *tables: str) -> None:
    """Raises `FailedPrecondition` if one of the tables has batches that the checkpoint doesn't know.

    Call it before you start a query that writes its batches with Delta's `txnAppId` (the query's id) and `txnVersion`
    (the batch's number). `checkpoint` is the query's checkpoint, which may not exist yet, and `tables` are the paths or
    names of its Delta tables. Over Spark Connect it checks nothing, because only Java shows the numbers of batches that
    a table has.

    Example:
        check_checkpoint(spark, "/data/orders-checkpoint", "/data/orders")
    """
    if not is_remote(spark):
        refuse_ahead(spark, Files(spark, str(checkpoint)), *tables)


def refuse_ahead(spark: SparkSession, checkpoint: Files, *tables: str) -> None:
    """Does what `check_checkpoint` does."""
    query = ownership.query_of(checkpoint)
    if query is None:
        return
    planned = ownership.last_planned(checkpoint)
    for table in tables:
        if (there := last_batch(spark, table, query)) > planned:
            raise FailedPrecondition(
                f"{table} has batch {there} of the query of checkpoint {checkpoint.root}, which knows batches up to "
                f"{planned}: an older copy of the checkpoint was put back. If the query went on there, Delta would "
                "take new messages for repeats and leave them out. Put back the checkpoint as it was after batch "
                f"{there}, or begin anew with another checkpoint and another table"
            )
