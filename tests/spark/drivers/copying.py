"""A user's own program that copies a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark import messages, write_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    rows = messages(spark, source, bootstrap=bootstrap, stream=True, max_per_batch=20)
    query = write_stream(
        rows.select("data", "ordering_key"), target, query="copy", checkpoint=checkpoint, bootstrap=bootstrap
    )
    query.awaitTermination()
