"""Makes the records by which messages wait until they are due: those that a publisher's `deliver_at` makes.

Rules
1. The record is the one of `kafka_pubsub/delays/publisher.py`, byte for byte. A router brings it home under the id that
   `outgoing.py` gave it, so that a repeat is recognised there as well.
2. What is due already, and what has no time, goes straight home.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.delays.layout import INGEST, longest, tiers_of
from kafka_pubsub.delays.records import DELAY_HEADER, VERSION, address
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.sealed import schema_text

from ..base.cluster import Cluster
from ..base.connection import Connection
from ..base.spark_session import first_line, is_remote
from ..reading.avro import has_spark_avro

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DUE", "check_due", "delayed", "due_of"]

#: The column of records with the time at which they are due.
DUE = "_due"


def check_due(spark: SparkSession) -> None:
    """Raises `FailedPrecondition` if this session can't write delayed messages."""
    if is_remote(spark):
        raise FailedPrecondition(
            "deliver_at: over Spark Connect nothing can be written with it: use a session that isn't remote"
        )
    if not has_spark_avro(spark):
        raise FailedPrecondition(
            "deliver_at needs the package org.apache.spark:spark-avro in the session: add it"
        )


def due_of(messages: DataFrame, deliver_at: datetime | Column) -> Column:
    """Returns when a message is due; `InvalidArgument` if that isn't a time."""
    if isinstance(deliver_at, datetime):
        if deliver_at.tzinfo is None:
            raise InvalidArgument(
                f"deliver_at: {deliver_at.isoformat()} has no time zone: use datetime.now(UTC) + ..., or "
                "deliver_at.astimezone()"
            )
        return F.lit(deliver_at)
    if not isinstance(deliver_at, Column):
        raise InvalidArgument(
            f"deliver_at: must be a datetime or a column (col('remind_at')), not {type(deliver_at).__name__}"
        )
    try:
        kind = messages.select(deliver_at.alias(DUE)).dtypes[0][1]
    except Exception as error:
        raise InvalidArgument(f"deliver_at isn't a column of the DataFrame: {first_line(error)}") from error
    if kind != "timestamp":
        raise InvalidArgument(f"deliver_at is {kind}, not timestamp: cast it")
    return deliver_at


def delayed(found: DataFrame, home: str, connection: Connection) -> DataFrame:
    """Makes records for the topic of ingest, or for `home`, from records with the column `DUE`; adds `topic`.

    Raises `FailedPrecondition` if the cluster has no topics for delays yet.
    """
    with Cluster(found.sparkSession, connection) as cluster:
        there = cluster.topics()
        tiers = tiers_of(there)
        if INGEST not in there or not tiers:
            raise FailedPrecondition(
                "deliver_at: no message of this cluster was delayed yet, so the topics of the delays aren't there, and "
                "Spark makes none: start `kafka-pubsub service router`, which makes them and brings messages home"
            )
        where = address(home, as_clients_say(cluster.topic_id(home)))
    # Rounded up, because nothing may come early.
    due = F.ceil(F.unix_micros(DUE) / 1000).cast("bigint")
    wait = due - F.unix_millis(F.current_timestamp())
    most = longest(tiers)
    said = F.concat(F.lit("deliver_at: "), F.col(DUE).cast("string"), F.lit(f" is more than {most} s away, "))
    refused = F.raise_error(
        F.concat(said, F.lit(f"which the {tiers} delay tiers of this cluster can't hold"))
    )
    checked = F.when(wait > most * 1000, refused.cast("bigint")).otherwise(due)
    header = F.struct(F.lit(DELAY_HEADER).alias("key"), _sealed(where, checked).alias("value"))
    key = F.concat(F.lit(home.encode() + b"\0"), "key")
    waits = F.coalesce(wait > 0, F.lit(False))
    return found.select(
        F.when(waits, INGEST).otherwise(F.lit(home)).alias("topic"),
        F.when(waits, key).otherwise(F.col("key")).alias("key"),
        "value",
        F.when(waits, F.concat(F.array(header), "headers")).otherwise(F.col("headers")).alias("headers"),
    )


def as_clients_say(topic_id: str) -> str:
    """Returns a topic id as librdkafka and the catalog write it: Java has `-` and `_` for `+` and `/`."""
    return topic_id.replace("-", "+").replace("_", "/")


def _sealed(where: str, due: Column) -> Column:
    """Returns the value of the header: the schema's version, the request as Avro, and a checksum over both."""
    from pyspark.sql.avro.functions import to_avro

    request = F.struct(
        F.lit(where).alias("home"), due.alias("due"), F.lit(None).cast("bigint").alias("delay")
    )
    sealed = F.concat(F.lit(bytes([VERSION])), to_avro(request, schema_text("delay_request", VERSION)))
    return F.concat(sealed, F.unhex(F.lpad(F.hex(F.crc32(sealed)), 8, "0")))
