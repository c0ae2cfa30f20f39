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

from kafka_pubsub.errors import FailedPrecondition, SchemaError

from .frames import computed_once
from .python_decoder import BODY, SCHEMA_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["by_avro", "check_schema", "has_spark_avro"]

_NAMED = ("record", "enum", "fixed", "error")
_PROBLEM = "isn't a body of the schema"
#: The column of the wrapper, while it is read.
_READ = "_read"
#: Stands behind each body. Its first byte isn't among the others, so no shifted trailer equals it.
_TRAILER = b"\xffkpubsub\x00"


def by_avro(messages: DataFrame, schema: str, writers: Mapping[int, str] | None) -> DataFrame:
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


def check_schema(schema: str) -> Any:
    """Parses a schema; raises `SchemaError` if it isn't one, or isn't safe to decode with."""
    import fastavro

    try:
        parsed = json.loads(schema)
        fastavro.parse_schema(parsed)
    except Exception as error:
        raise SchemaError(f"schema: not an Avro schema: {type(error).__name__}: {error}") from error
    _check(parsed, {}, ())
    return parsed


def _check(node: Any, named: dict[str, Any], inside: tuple[str, ...]) -> bool:
    """Checks a part of a schema and the parts below it; returns whether a value of this part takes no byte."""
    if isinstance(node, str):
        if node in inside:
            raise SchemaError(
                f"schema: {node} contains itself, which can crash its decoder: give it a fixed depth"
            )
        return _check(named[node], named, inside) if node in named else node == "null"
    if isinstance(node, list):
        for each in node:
            _check(each, named, inside)
        return False
    kind = node["type"]
    if kind in ("array", "map"):
        if _check(node["items" if kind == "array" else "values"], named, inside) and kind == "array":
            raise SchemaError(
                "schema: an array of items that take no bytes can grow without limit: leave it out"
            )
        return False
    if kind not in _NAMED:
        return _check(kind, named, inside)
    name = node["name"]
    named[name] = node
    if kind in ("record", "error"):
        # A list, so that every field is checked, also after one that takes bytes.
        sizes = [_check(each["type"], named, (*inside, name)) for each in node["fields"]]
        return all(sizes)
    return bool(kind == "fixed" and node["size"] == 0)


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


def _by_spark(messages: DataFrame, parsed: Any, written: Mapping[int, Any] | None) -> DataFrame:
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
