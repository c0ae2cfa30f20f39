"""Aggregates readings of devices by window and device, and chooses the windows of which alerts are published.

Rules
1. A window is written once, when the watermark has passed its end; readings that come later are left out.
2. A reading without a time is in no window; Spark counts such readings by the name `UNTIMED`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from ..progress import UNTIMED
from ..spark_session import first_line
from ..tables import Layout
from .times import timed

__all__ = ["WINDOWS", "alerts", "chosen", "last_of", "windows"]

WINDOWS = Layout("windows", partitions=("date",), statistics=("ordering_key", "start", "end"))


def windows(messages: DataFrame, fields: Sequence[str], *, window: str, late: str, time: str) -> DataFrame:
    """Computes by window and key the number of readings, and the least, mean and greatest value of each field.

    `time` is a SQL expression for a reading's time.
    """
    if not fields:
        raise InvalidArgument("field: name at least one number of the readings, e.g. temp")
    text = F.col("data").cast("string")
    read = [
        F.get_json_object(text, f"$.{name}").try_cast("double").alias(f"value_{at}")
        for at, name in enumerate(fields)
    ]
    untimed = F.count_if(F.col("time").isNull()).alias("readings")
    found = timed(messages, time, "ordering_key", *read).observe(UNTIMED, untimed)
    numbers = [
        function(f"value_{at}").alias(f"{name}_{kind}")
        for at, name in enumerate(fields)
        for kind, function in (("min", F.min), ("avg", F.avg), ("max", F.max))
    ]
    grouped = found.withWatermark("time", late).groupBy(F.window("time", window), "ordering_key")
    told = grouped.agg(F.count("*").alias("readings"), *numbers)
    return told.select(
        "ordering_key",
        "window.start",
        "window.end",
        *told.columns[2:],
        F.to_date("window.start").alias("date"),
    )


def last_of(window: str) -> Column:
    """Returns the end of a message's window, by its `time`; Spark leaves the message out if the watermark is there."""
    # A row whose time is null would be left out by the function itself.
    return F.window(F.coalesce("time", F.timestamp_seconds(F.lit(0))), window)["end"]


def chosen(found: DataFrame, condition: str) -> DataFrame:
    """Returns the windows of which the condition holds."""
    try:
        return found.where(condition)
    except Exception as error:
        raise InvalidArgument(
            f"--alert {condition!r} isn't a condition over {', '.join(found.columns)}: {first_line(error)}"
        ) from error


def alerts(found: DataFrame, condition: str) -> DataFrame:
    """Returns the windows of which the condition holds, as messages to publish."""
    told = [name for name in found.columns if name != "date"]
    return chosen(found, condition).select(
        "ordering_key",
        F.to_json(F.struct(*told)).cast("binary").alias("data"),
        F.create_map(F.lit("kind"), F.lit("alert")).alias("attributes"),
        "start",
    )
