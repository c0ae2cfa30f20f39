"""Reads by which schema a body was written: from the frames of Confluent's and Apicurio's serializers, or a header.

Theory. Both frames begin with a zero byte and the schema's number in the registry, with the highest byte first:
Confluent's has 4 bytes for it, Apicurio's 4 bytes from Registry 3 on and 8 bytes before. The number names the schema
that wrote the body; the reader chooses the schema to read it by. For Protobuf each of the two frames also names the
message in its own way (`protobuf.py`). A bare body has the header `record-schema` instead: the schema's number in a
registry (`17`), or its subject and number in a folder (`orders/3`).

Rule: a body whose schema isn't known is not decoded by another schema, which would give wrong values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.records.frames import RECORD_HEADER

from .python_decoder import BODY, SCHEMA_ID

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FRAME_PROBLEM", "Framing", "Writers", "computed_once", "unframed"]

#: How a body is framed: not at all, as one of these serializers does it, or by the header `record-schema`.
Framing = Literal["none", "confluent", "apicurio", "apicurio3", "header"]
#: The schemas by which bodies were written, by number, or by the text of the header.
Writers = Mapping[int, str] | Mapping[str, str]
_NUMBER = {"confluent": 4, "apicurio": 8, "apicurio3": 4}
#: The column that says why a body has no frame.
FRAME_PROBLEM = "_frame_problem"


def unframed(messages: DataFrame, framing: Framing, known: Writers | None) -> DataFrame:
    """Adds to messages the body without its frame, its schema's number, and why it can't be decoded, if it can't.

    `known` are the numbers of the schemas that can be decoded; None: all numbers are accepted. With the framing
    "header" the number is the text of the header.
    """
    from pyspark.sql import functions as F

    body = F.col("data").cast("binary")
    if framing == "none":
        nothing = F.lit(None)
        return messages.withColumns(
            {BODY: body, SCHEMA_ID: nothing.cast("bigint"), FRAME_PROBLEM: nothing.cast("string")}
        )
    if framing == "header":
        named = F.col("attributes")[RECORD_HEADER]
        return _judged(messages, named, named.isNotNull(), f"has no header {RECORD_HEADER}", body, known)
    if framing not in _NUMBER:
        raise InvalidArgument(
            f"framing must be 'none', 'confluent', 'apicurio', 'apicurio3' or 'header', not {framing!r}"
        )
    size = _NUMBER[framing]
    # A number whose highest bit is set doesn't fit into a bigint and becomes null; no registry gives such a number.
    number = F.conv(F.hex(F.substring(body, 2, size)), 16, 10).try_cast("bigint")
    framed = (F.length(body) > size) & (F.hex(F.substring(body, 1, 1)) == "00")
    rest = F.substring(body, F.lit(size + 2), F.length(body))
    return _judged(messages, number, framed, f"isn't framed as {framing} does it", rest, known)


def _judged(
    messages: DataFrame,
    number: Column,
    framed: Column,
    unframed_problem: str,
    rest: Column,
    known: Writers | None,
) -> DataFrame:
    """Adds the columns of `unframed`: the number, and the rest of the bodies whose schema is known."""
    from pyspark.sql import functions as F

    problem = F.when(~framed, F.lit(unframed_problem))
    if known is not None:
        there = F.lit(False) if not known else number.isin(*known)
        said = F.concat(
            F.lit("was written by schema "), F.col(SCHEMA_ID).cast("string"), F.lit(", which isn't known")
        )
        problem = problem.when(number.isNull() | ~there, said)
    found = messages.withColumn(SCHEMA_ID, F.when(framed, number)).withColumn(FRAME_PROBLEM, problem)
    return found.withColumn(BODY, F.when(F.col(FRAME_PROBLEM).isNull(), rest))


def computed_once(messages: DataFrame, name: str, column: Column) -> DataFrame:
    """Adds a column that is computed once for each row, whatever a query does with it.

    Spark moves a filter over a computed column to before the computation, with a copy of its expression for each use:
    `problem is null` decoded each body four times more. It moves no filter before a generator.
    """
    from pyspark.sql import functions as F

    return messages.withColumn(name, F.explode_outer(F.array(column)))
