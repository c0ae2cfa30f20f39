"""Translates an Avro schema into the Spark type that Spark's own converter gives, for sessions without spark-avro."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as T

from kafka_pubsub.errors import SchemaError

__all__ = ["spark_type"]

_SIMPLE: dict[str, T.DataType] = {
    "null": T.NullType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
}
_LOGICAL: dict[str, T.DataType] = {
    "date": T.DateType(),
    "timestamp-millis": T.TimestampType(),
    "timestamp-micros": T.TimestampType(),
    "local-timestamp-millis": T.TimestampNTZType(),
    "local-timestamp-micros": T.TimestampNTZType(),
}


def spark_type(node: Any, named: dict[str, T.DataType]) -> T.DataType:
    """Returns the type of this part of a schema; every part may be null. `named` has the named types so far."""
    if isinstance(node, str):
        return named[node] if node in named else _SIMPLE[node]
    if isinstance(node, list):
        return _union([each for each in node if each != "null"], named)
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal":
        return T.DecimalType(node["precision"], node.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return T.ArrayType(spark_type(node["items"], named))
    if kind == "map":
        return T.MapType(T.StringType(), spark_type(node["values"], named))
    if kind in ("enum", "fixed"):
        named[node["name"]] = T.StringType() if kind == "enum" else T.BinaryType()
        return named[node["name"]]
    if kind in ("record", "error"):
        fields = [T.StructField(each["name"], spark_type(each["type"], named)) for each in node["fields"]]
        named[node["name"]] = T.StructType(fields)
        return named[node["name"]]
    return spark_type(kind, named)


def _union(others: list[Any], named: dict[str, T.DataType]) -> T.DataType:
    if len(others) == 1:
        return spark_type(others[0], named)
    raise SchemaError(
        "schema: a union of several types needs Spark's own decoder: add org.apache.spark:spark-avro"
    )
