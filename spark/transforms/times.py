"""Reads the time of an event by a SQL expression of the user."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from ..spark_session import first_line

__all__ = ["timed", "with_time"]


def timed(messages: DataFrame, expression: str, *columns: str | Column) -> DataFrame:
    """Returns these columns and `time`, by the expression; it is null where the expression gives no time."""
    try:
        # The expression is a column of its own first: an incomplete one must not be completed by a cast around it.
        return messages.select(*columns, F.expr(expression).alias("time")).withColumn(
            "time", F.col("time").try_cast("timestamp")
        )
    except Exception as error:
        raise InvalidArgument(
            f"--time {expression!r} isn't an expression over a message: {first_line(error)}"
        ) from error


def with_time(messages: DataFrame, expression: str) -> DataFrame:
    """Returns all columns and `time`, by the expression."""
    return timed(messages, expression, *messages.columns)
