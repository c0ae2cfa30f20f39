"""When an event happened, by a SQL expression that a user gives."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from ..spark_session import first_line

__all__ = ["timed", "with_time"]


def timed(messages: DataFrame, expression: str, *columns: str | Column) -> DataFrame:
    """These columns, and `time` by the expression; null where the expression gives no time."""
    try:
        # As a column first: what isn't an expression shall not be completed by ours.
        return messages.select(*columns, F.expr(expression).alias("time")).withColumn(
            "time", F.col("time").try_cast("timestamp")
        )
    except Exception as error:
        raise InvalidArgument(
            f"--time {expression!r} isn't an expression over a message: {first_line(error)}"
        ) from error


def with_time(messages: DataFrame, expression: str) -> DataFrame:
    """All columns, and `time`."""
    return timed(messages, expression, *messages.columns)
