"""Decodes Avro bodies into columns by a given schema; a body that can't be decoded stays, with the reason.

Theory. Spark's own `from_avro` runs inside the JVM. For a body that it can't read it gives nulls, field by field. So
the schema is wrapped into a record, which adds no byte: its field is null exactly if the body couldn't be read. Spark
also ignores bytes that are left over, and text could be read as a few numbers. So each body gets a trailer, which the
wrapper's second field reads: bytes left over would stand there instead.

Rules
1. No row is lost: `record` is null and `problem` says why, or `record` is there and `problem` is null.
2. A schema with which five bytes become twenty million items, or that crashes its decoder (it contains itself),
   is refused before anything is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.records.limits import check_schema

from .frames import Writers, computed_once
from .python_decoder import BODY, SCHEMA_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["by_avro", "has_spark_avro"]

_PROBLEM = "isn't a body of the schema"
#: The column of the wrapper, while it is read.
_READ = "_read"
#: Stands behind each body. Its first byte isn't among the others, so no shifted trailer equals it.
_TRAILER = b"\xffkpubsub\x00"


def by_avro(messages: DataFrame, schema: str, writers: Writers | None) -> DataFrame:
    """Adds `record` and `problem` to messages that have the columns of `frames.unframed`.

    `schema` is the reader's schema. `writers` are the schemas that bodies were written by, by number (None: all were
    written by `schema`).
    """
    parsed = check_schema(schema)
    written = None if writers is None else {number: check_schema(text) for number, text in writers.items()}
    if not has_spark_avro(messages.sparkSession):
        raise FailedPrecondition(
            "Avro needs the package org.apache.spark:spark-avro in the session: add it to those that it starts with"
        )
    return _by_spark(messages, parsed, written)


def has_spark_avro(spark: SparkSession) -> bool:
    """Returns whether the package spark-avro is there."""
    try:
        # For a schema Spark only resolves the function.
        _ = spark.range(0).selectExpr("from_avro(binary(''), '\"int\"', map())").schema
    except Exception as error:
        if "AVRO" not in str(error):
            raise
        return False
    return True


def _wrapped(parsed: Any) -> str:
    end = {"type": "fixed", "name": "kafka_pubsub_end", "size": len(_TRAILER)}
    fields = [{"name": "record", "type": parsed}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "kafka_pubsub_wrapped", "fields": fields})


def _by_spark(messages: DataFrame, parsed: Any, written: Mapping[int | str, Any] | None) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    reader = {"mode": "PERMISSIVE", "avroSchema": _wrapped(parsed)}
    whole = F.concat(F.col(BODY), F.lit(_TRAILER))
    if written is None:
        read = from_avro(whole, _wrapped(parsed), reader)
    else:
        read = F.lit(None)
        for number, writer in written.items():
            one = from_avro(whole, _wrapped(writer), reader)
            read = F.when(F.col(SCHEMA_ID) == number, one).otherwise(read)
    found = computed_once(messages, _READ, read)
    found = found.withColumn(
        "record", F.when(F.col(f"{_READ}.end") == F.lit(_TRAILER), F.col(f"{_READ}.record"))
    )
    found = found.drop(_READ)
    said = F.concat(F.lit(f"{_PROBLEM} ("), F.length(BODY).cast("string"), F.lit(" bytes)"))
    return found.withColumn("problem", F.when(F.col(BODY).isNotNull() & F.col("record").isNull(), said))
