"""Decodes bodies into columns by a schema of JSON, Avro or Protobuf.

Rules
1. No row is lost: `record` is null and `problem` says why, or `record` is there and `problem` is null.
2. A schema with which few bytes become a very large value, or that contains itself, is refused before anything is read.
3. Spark itself decodes JSON and Avro, and Python on the executors Protobuf.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

from kafka_pubsub.errors import InvalidArgument, SchemaError

from .frames import FRAME_PROBLEM, Framing, Writers, computed_once, unframed
from .protobuf import Protobuf
from .python_decoder import BODY, SCHEMA_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["by_json", "decoded"]

_READ = "_read"


def decoded(
    messages: DataFrame,
    schema: str | StructType | Protobuf,
    *,
    framing: Framing = "none",
    writers: Writers | None = None,
) -> DataFrame:
    """Adds `record` (the decoded body) and `problem` (why there is no `record`) to messages.

    `schema` is, for JSON, the columns: "id bigint, amount double" or a `StructType`; for Avro the schema as JSON text;
    for Protobuf `Protobuf(descriptors, message)`. `framing` says how bodies name the schema that they were written by:
    "none" (default: they don't), "confluent", "apicurio" (8 bytes of a number), "apicurio3" (4 bytes, from Registry 3
    on) or "header" (bare bodies with the header `record-schema`); with a framing, the column `schema_id` has the
    schema's number, or the header's text. `writers` are, for framed Avro, the schemas by number or by that text,
    e.g. `registered(registry, subject)` or `schemas_in(folder, subject)`; a body of another schema isn't decoded
    (default: none). Avro needs the package spark-avro in the session.

    Example:
        decoded(messages(spark, "orders"), "id bigint, amount double").where("problem is null").select("record.*")
    """
    from pyspark.sql import functions as F

    kind = _kind_of(schema)
    if kind == "avro" and (framing == "none") != (writers is None):
        raise InvalidArgument(
            "writers (--registry): framed Avro needs the schemas that bodies were written by; Avro without a frame "
            "takes none"
        )
    if kind != "avro" and writers is not None:
        raise InvalidArgument("writers: only framed Avro takes them")
    if framing == "header" and writers is not None:
        writers = {str(number): text for number, text in writers.items()}
    found = unframed(messages, framing, writers)
    if isinstance(schema, Protobuf):
        from .protobuf import by_protobuf

        found = by_protobuf(found, schema, framing)
    elif kind == "avro":
        from .avro import by_avro

        found = by_avro(found, str(schema), writers)
    else:
        found = by_json(found, F.col(BODY).cast("string"), schema)
    said = F.when(F.col("data").isNull(), F.lit("a tombstone has no body"))
    found = found.withColumn("problem", F.coalesce(said, FRAME_PROBLEM, "problem"))
    if framing != "none":
        found = found.withColumn("schema_id", F.col(SCHEMA_ID))
    return found.drop(BODY, SCHEMA_ID, FRAME_PROBLEM)


def _kind_of(schema: str | StructType | Protobuf) -> str:
    if isinstance(schema, Protobuf):
        return "protobuf"
    if not isinstance(schema, str):
        return "json"
    text = schema.strip()
    if text.startswith(("{", "[", '"')):
        return "avro"
    try:
        json.loads(text)
    except ValueError:
        return "json"
    return "avro"


def by_json(messages: DataFrame, text: Column, schema: str | StructType) -> DataFrame:
    """Adds `record` and `problem` to messages, by `text`, a JSON object; both are null where `text` is null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

    columns = schema if isinstance(schema, StructType) else _parsed(messages, schema)
    # Spark reads the first value of a text and ignores what follows. So the text is put into an array, in front of an
    # end: a text that isn't one value leaves more or less than these two. No text can name a key made at random.
    inside, end, corrupt = (f"{name}_{uuid4().hex}" for name in ("record", "end", "corrupt"))
    inner = F.concat(F.lit(f'{{"{inside}":['), text, F.lit(f',{{"{end}":1}}]}}'))
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": corrupt,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    element = StructType(columns.fields).add(end, IntegerType())
    whole = StructType().add(inside, ArrayType(element)).add(corrupt, StringType())
    read = computed_once(messages, _READ, F.from_json(inner, whole, options))
    found = F.col(f"{_READ}.{inside}")
    first, last = F.get(found, F.lit(0)), F.get(found, F.lit(1))
    one = (F.size(found) == 2) & (last[end] == 1) & first.isNotNull() & F.ltrim(text).startswith("{")
    sound = F.col(f"{_READ}.{corrupt}").isNull() & F.coalesce(one, F.lit(False))
    # Only of the few bodies that can't be read the text is parsed again, for the reason.
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    in_object = F.try_parse_json(F.concat(F.lit('{"record":'), text, F.lit("}")))
    is_object = F.ltrim(text).startswith("{") & alone & in_object.isNotNull()
    problem = (
        F.when(text.isNull() | sound, F.lit(None))
        .when(F.coalesce(is_object, F.lit(False)), F.lit("has a value of another type than the schema says"))
        .otherwise(F.lit("isn't a JSON object"))
    )
    record = F.when(sound, F.struct(*(first[name].alias(name) for name in columns.names)))
    return read.withColumns({"record": record, "problem": problem}).drop(_READ)


def _parsed(messages: DataFrame, schema: str) -> StructType:
    from pyspark.sql.types import StructType

    from ..base.spark_session import first_line

    try:
        # An empty DataFrame parses the schema, because that works in every kind of session.
        found = messages.sparkSession.createDataFrame([], schema).schema
    except Exception as error:
        raise SchemaError(
            f"schema {schema!r} is neither an Avro schema nor columns as SQL ('id bigint, amount double'): "
            f"{first_line(error)}"
        ) from error
    return StructType(found.fields)
