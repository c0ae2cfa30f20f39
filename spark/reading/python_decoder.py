"""Decodes bodies with Python on the executors, a batch of Arrow at a time, where Spark has no decoder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

__all__ = ["BODY", "SCHEMA_ID", "Decode", "by_python"]

#: The columns to decode: the body without its frame, and the number of its schema.
BODY, SCHEMA_ID = "_body", "_schema_id"
#: Turns a body and what names its schema (None: nothing does) into a record; an exception says why it can't.
Decode = Callable[[bytes, int | str | None], Any]


def by_python(messages: DataFrame, kind: DataType, begin: Callable[[], Decode]) -> DataFrame:
    """Adds `record` (of the type `kind`) and `problem` to messages; executors call `begin` for the decoder."""
    more = [StructField("record", kind, True), StructField("problem", StringType(), True)]

    def decode(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        return _decode_batches(batches, begin(), kind)

    return messages.mapInArrow(decode, StructType([*messages.schema.fields, *more]))


def _decode_batches(batches: Iterable[RecordBatch], decode: Decode, kind: DataType) -> Iterator[RecordBatch]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    arrow = to_arrow_type(kind)
    for batch in batches:
        records, problems = [], []
        ids = batch.column(SCHEMA_ID).to_pylist()
        for body, number in zip(batch.column(BODY), ids, strict=True):
            record, problem = _decoded(body.as_py(), number, decode)
            records.append(record)
            problems.append(problem)
        columns = [*batch.columns, pa.array(records, arrow), pa.array(problems, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "record", "problem"])


def _decoded(body: bytes | None, number: int | str | None, decode: Decode) -> tuple[Any, str | None]:
    if body is None:
        # This is a tombstone, or a body without the frame that it should have; `decoded` says so in `problem`.
        return None, None
    try:
        return decode(body, number), None
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return None, f"isn't a body of the schema ({len(body)} bytes): {text}"[:500]
