"""Rows that a job takes, and rows that it doesn't: by conditions over a message and over the columns of its body.

Rules
1. A row is kept when every condition is true of it; where one is false or null, the row is rejected and says which.
2. A body that can't be decoded (`problem`) is rejected with that reason.
3. A rejected row keeps its bytes and says where it lies, so that it can be looked at, mended and published again.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kafka_pubsub.errors import InvalidArgument

from ..spark_session import first_line
from ..tables import Layout

__all__ = ["REJECTS", "split"]

REJECTS = Layout(
    "rejected rows", partitions=("topic",), statistics=("publish_time", "partition", "offset", "rejected_at")
)
#: What a rejected row keeps of its message.
_KEPT = ("topic", "partition", "offset", "publish_time", "message_id", "key", "headers", "data")
_REASON = "_reason"


def split(
    rows: DataFrame, conditions: Sequence[str], *, unless: Column | None = None
) -> tuple[DataFrame, DataFrame]:
    """The rows of which every condition holds, with their columns; and the others, as a table of rejected rows.

    `rows` are messages, whose `record` and `problem` (of `decoded`) count where they are. `conditions` are SQL over the
    columns of a message and the fields of `record`. `unless`: rows that no condition is asked of (default: none).

    The columns of rejected rows: topic, partition, offset, publish_time, message_id, key, headers, data, reason and
    rejected_at.

    Example:
        kept, rejected = split(decoded(messages(spark, "orders"), "amount double"), ["amount >= 0"])
    """
    # A condition may name a field of the body by itself; the columns of a message come first.
    fields = _fields_of(rows)
    # With no fields too: Spark Connect takes no empty list of columns to add.
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
    # Spark takes names that differ only in the case of their letters for the same.
    taken = {name.lower() for name in rows.columns}
    return [name for name in kind.names if name.lower() not in taken]


def _failed(scope: DataFrame, condition: str, unless: Column | None) -> Column:
    """What is said of a row of which the condition doesn't hold; null of another."""
    try:
        holds = F.expr(condition)
        # Looks whether it is a condition over these columns; nothing is read.
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
