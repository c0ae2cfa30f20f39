"""Avro bodies as columns: decoded by a given schema; what can't be decoded stays, with its bytes and the reason.

Theory. Spark's own `from_avro` runs inside the JVM, and is used wherever it is there (the package spark-avro).
It says of a body that it can't read only that it is null, field by field. So the schema is wrapped into a
record of one field, which costs no byte: that field is null exactly if the body couldn't be read. Without
spark-avro, fastavro decodes batches of Arrow.

Rules
1. No row is lost: `record` is null and `problem` says why, or `record` is there and `problem` is null.
2. A schema with which five bytes become twenty million items, or that crashes its decoder (it contains itself),
   is refused before anything is read.
3. Both decoders give the same columns, of the types that Spark's has.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from kafka_pubsub.errors import FailedPrecondition, SchemaError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_schema", "decoded"]

Decoder = Literal["auto", "spark", "fastavro"]
_NAMED = ("record", "enum", "fixed", "error")
_PROBLEM = "isn't a body of the schema"


def decoded(messages: DataFrame, schema: str, *, decoder: Decoder = "auto") -> DataFrame:
    """The messages with `record` (by the Avro schema, as JSON text) and `problem` (text) in addition.

    Example:
        decoded(messages(spark, "orders"), schema).where("problem is null").select("record.*").show()
    """
    parsed = check_schema(schema)
    spark = messages.sparkSession
    there = _has_spark_avro(spark)
    if decoder == "spark" and not there:
        raise FailedPrecondition(
            "decoder='spark' needs the package org.apache.spark:spark-avro in the session: add it, or use 'fastavro'"
        )
    if decoder == "fastavro" or not there:
        return _by_fastavro(messages, parsed)
    return _by_spark(messages, parsed)


def check_schema(schema: str) -> Any:
    """The parsed schema, if it is one that is safe to decode with; `SchemaError` otherwise."""
    import fastavro

    try:
        parsed = json.loads(schema)
        fastavro.parse_schema(parsed)
    except Exception as error:
        raise SchemaError(f"schema: not an Avro schema: {type(error).__name__}: {error}") from error
    _check(parsed, {}, ())
    return parsed


def _check(node: Any, named: dict[str, Any], inside: tuple[str, ...]) -> bool:
    """Walks the schema; True if a value of this part takes no byte at all."""
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
        # Each is looked at, also behind one that takes bytes.
        sizes = [_check(each["type"], named, (*inside, name)) for each in node["fields"]]
        return all(sizes)
    return bool(kind == "fixed" and node["size"] == 0)


def _has_spark_avro(spark: SparkSession) -> bool:
    try:
        # Spark resolves the function, and runs nothing.
        _ = spark.range(0).selectExpr("from_avro(binary(''), '\"int\"', map())").schema
    except Exception as error:
        if "AVRO" not in str(error):
            raise
        return False
    return True


def _wrapped(parsed: Any) -> str:
    field = {"name": "record", "type": parsed}
    return json.dumps({"type": "record", "name": "kafka_pubsub_wrapped", "fields": [field]})


def _by_spark(messages: DataFrame, parsed: Any) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    body = from_avro("data", _wrapped(parsed), {"mode": "PERMISSIVE"})["record"]
    found = messages.withColumn("record", body)
    said = F.concat(F.lit(f"{_PROBLEM} ("), F.length("data").cast("string"), F.lit(" bytes)"))
    return found.withColumn(
        "problem",
        F.when(F.col("data").isNull(), F.lit("a tombstone has no body")).when(F.col("record").isNull(), said),
    )


def _by_fastavro(messages: DataFrame, parsed: Any) -> DataFrame:
    from pyspark.sql.types import StringType, StructField, StructType

    from .avro_types import spark_type

    kind = spark_type(parsed, {})
    more = [StructField("record", kind, True), StructField("problem", StringType(), True)]
    text = json.dumps(parsed)

    def decode(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        return _decode_batches(batches, text, kind)

    return messages.mapInArrow(decode, StructType([*messages.schema.fields, *more]))


def _decode_batches(batches: Iterable[RecordBatch], schema: str, kind: Any) -> Iterator[RecordBatch]:
    """Runs on executors."""
    import fastavro
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    parsed = fastavro.parse_schema(json.loads(schema))
    arrow = to_arrow_type(kind)
    for batch in batches:
        records, problems = [], []
        for body in batch.column("data"):
            record, problem = _decode(body.as_py(), parsed)
            records.append(record)
            problems.append(problem)
        columns = [*batch.columns, pa.array(records, arrow), pa.array(problems, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "record", "problem"])


def _decode(body: bytes | None, parsed: Any) -> tuple[Any, str | None]:
    import fastavro

    if body is None:
        return None, "a tombstone has no body"
    stream = io.BytesIO(body)
    try:
        return fastavro.schemaless_reader(stream, parsed, None), None
    except Exception as error:
        return None, f"{_PROBLEM} ({len(body)} bytes): {type(error).__name__}: {error}"[:500]
