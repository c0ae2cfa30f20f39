"""Splits rows into those that a job takes and those that it rejects, by conditions over messages and their bodies.

Rules
1. A row is kept if every condition is true of it. If a condition is false or null, the row is rejected, and its reason
   names the condition.
2. A row whose body can't be decoded (`problem`) is rejected with that reason.
3. A rejected row keeps its bytes, topic, partition and offset, so that it can be inspected, corrected and published
   again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kafka_pubsub.errors import InvalidArgument

from ..base.spark_session import first_line
from ..base.tables import Layout

__all__ = ["REJECTS", "split"]

REJECTS = Layout(
    "rejected rows", partitions=("topic",), statistics=("publish_time", "partition", "offset", "rejected_at")
)
#: The columns of a message that a rejected row keeps.
_KEPT = ("topic", "partition", "offset", "publish_time", "message_id", "key", "headers", "data")
_REASON = "_reason"


def split(
    rows: DataFrame, conditions: Sequence[str], *, unless: Column | None = None
) -> tuple[DataFrame, DataFrame]:
    """Returns the rows of which every condition holds, with their columns, and the others as rejected rows.

    `rows` are messages, with or without the columns `record` and `problem` of `decoded`. `conditions` are SQL over the
    columns of a message and the fields of `record`. No condition is checked of rows for which `unless` holds (default:
    they are checked of all rows).

    The columns of rejected rows: topic, partition, offset, publish_time, message_id, key, headers, data, reason and
    rejected_at.

    Example:
        kept, rejected = split(decoded(messages(spark, "orders"), "amount double"), ["amount >= 0"])
    """
    # A condition may name a field of the body without `record.`, unless a message has a column of that name.
    fields = _fields_of(rows)
    # `select` also works without fields; `withColumns` of Spark Connect refuses an empty list.
    scope = rows.select("*", *(F.col(f"record.`{name}`").alias(name) for name in fields))
    failed = [_failed(scope, condition, unless) for condition in conditions]
    problem = F.col("problem") if "problem" in rows.columns else F.lit(None).cast("string")
    unmet = F.concat_ws("; ", *failed)
    reason = F.coalesce(problem, F.when(unmet != "", unmet))
    judged = scope.withColumn(_REASON, reason).drop(*fields)
    kept = judged.where(F.col(_REASON).isNull()).drop(_REASON)
    rejected = judged.where(F.col(_REASON).isNotNull()).select(
        *_KEPT, F.col(_REASON).alias("reason"), F.current_timestamp().alias("rejected_at")
    )
    return kept, rejected


def _fields_of(rows: DataFrame) -> list[str]:
    kind = rows.schema["record"].dataType if "record" in rows.columns else None
    if not isinstance(kind, StructType):
        return []
    # To Spark, names that differ only in the case of their letters are the same.
    taken = {name.lower() for name in rows.columns}
    return [name for name in kind.names if name.lower() not in taken]


def _failed(scope: DataFrame, condition: str, unless: Column | None) -> Column:
    """Returns the reason for a row of which the condition doesn't hold; null for other rows."""
    try:
        holds = F.expr(condition)
        # The type shows whether this is a condition over these columns; no data is read.
        if dict(scope.select(holds.alias("holds")).dtypes)["holds"] != "boolean":
            raise InvalidArgument(f"--expect {condition!r} is no condition: it is neither true nor false")
    except InvalidArgument:
        raise
    except Exception as error:
        fields = [name for name in scope.columns if name not in ("record", "problem")]
        raise InvalidArgument(
            f"--expect {condition!r} isn't a condition over {', '.join(fields)} (--schema gives more): "
            f"{first_line(error)}"
        ) from error
    met = F.coalesce(holds, F.lit(False))
    return F.when(~(met if unless is None else met | unless), F.lit(f"expected {condition}"))
