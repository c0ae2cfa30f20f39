"""Reads a topic as a DataFrame that says of each message which lane it lies in.

Rule: the rows are those of `messages`, with the lane in two more columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kafka_pubsub.lane_names import LANE_INFIX

from ..base.connection import connection_of
from .catalog import topic_of
from .messages import messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["lane_messages"]


def lane_messages(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    stream: bool = False,
    starting: str | datetime = "earliest",
    ending: str | datetime = "latest",
    max_per_batch: int | None = None,
    lost: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Reads the messages of a topic in all its lanes, one row for each.

    The columns are those of `messages`, then `priority` and `durable` (false: the transient class). `topic` in a row
    is the Kafka topic of the message's lane, so that (topic, partition, offset) is the message's place. The argument
    `topic` is the topic's name, without a lane; a topic that has no lanes is read as well. Rows have no order: a
    subscription begins with the highest priority, and of one priority with the lowest `publish_time`.

    A transient lane keeps its messages for an hour, so a stream may find that some are gone before it read them; with
    `lost="skip"` it goes on. The other arguments are those of `messages`, except that `starting` and `ending` can't be
    offsets.

    Example:
        lane_messages(spark, "jobs", bootstrap="localhost:9092").groupBy("priority", "durable").count().show()
    """
    from pyspark.sql import functions as F

    connection = connection_of(bootstrap, config)
    record = topic_of(spark, connection, topic)
    default = 0 if record is None else record.lane_rules.default
    found = messages(
        spark,
        topic,
        bootstrap=bootstrap,
        config=config,
        stream=stream,
        starting=starting,
        ending=ending,
        max_per_batch=max_per_batch,
        lost=lost,
        options=options,
    )
    named = f"^{re.escape(topic)}{re.escape(LANE_INFIX)}([pt])([0-9])$"
    priority = F.regexp_extract("topic", named, 2)
    home = F.col("topic") == topic
    return found.withColumns(
        {
            "priority": F.when(home, F.lit(default)).otherwise(priority.cast("int")),
            "durable": F.regexp_extract("topic", named, 1) != "t",
        }
    )
