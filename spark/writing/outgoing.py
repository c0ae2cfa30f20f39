"""Publishes rows to a topic, so that subscribers read them like any other message.

Theory. Spark's Kafka sink is the Java producer: idempotent, with `acks=all`, and its partitioner puts a key into the
same partition as every other client. But it may write a row more than once: a task that failed, or a batch that is
repeated after a crash, writes its rows again. So each row has a `ps-id` that is the same each time, by which a reader
recognises the repeat.

Rules
1. An id is made of query, batch and row, and is unique. A stream's query is that of its checkpoint. Other callers say
   which batch they write, or name each row, because two daily runs may hold equal rows.
2. A row's name is `row_id` if the caller gives one (an offset, for example). Otherwise it is made of the row's content
   and its number among equal rows, which is the same however Spark distributes the rows.
3. One task writes all rows of a key, in the order of `order_by`. Rows without a key are written by any task.
4. Rows that a publisher would refuse are refused here. Nothing of their batch is written unless a task had begun. So
   are causal topics, whose order only a sequencer decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.model import RESERVED_HEADER_PREFIX

from ..base.connection import Connection, connection_of
from .delayed import DUE, check_due, delayed, due_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["records", "target_of", "write", "write_records", "write_stream"]

#: The limit of publish/checks.py.
_MAX_KEY_BYTES = 1024
#: A server of Spark Connect gives its Python 10 s to start, which no setting changes. A busy one needs longer; the next
#: start is quicker.
LATE_STARTS, PYTHON_IS_LATE = 4, "Python worker failed to connect back"
_HEADERS = "array<struct<key:string,value:binary>>"


def records(
    messages: DataFrame,
    *,
    query: str,
    batch: int | str | None = None,
    row_id: Column | None = None,
    order_by: Sequence[str | Column] = (),
    more_headers: Mapping[str, Column] | None = None,
    deliver_at: datetime | Column | None = None,
) -> DataFrame:
    """Makes the key, value and headers for Spark's sink, with the `ps-id` of each row; the arguments are `write`'s.

    With `deliver_at` there is one more column, `DUE`.

    `messages` has the column `data` (bytes or text), and may have `ordering_key` (text) and `attributes` (a map of
    texts). `more_headers` are reserved headers, whose names begin with `ps-`.
    """
    _check_columns(messages)
    keyed = "ordering_key" in messages.columns
    key = F.col("ordering_key").cast("binary") if keyed else F.lit(None).cast("binary")
    attributes = (
        F.col("attributes") if "attributes" in messages.columns else F.lit(None).cast("map<string,string>")
    )
    due = [] if deliver_at is None else [due_of(messages, deliver_at)]
    named = messages.withColumn("_row", _row_name(messages, row_id, due))
    identity = F.concat_ws(":", *map(F.lit, _run_name(query, batch, row_id)), F.col("_row"))
    ours = [_header("id", identity), *(_header(*each) for each in (more_headers or {}).items())]
    checked = named.select(
        _checked_key(key).alias("key"),
        F.col("data").cast("binary").alias("value"),
        F.concat(_checked_headers(attributes), F.array(*ours)).cast(_HEADERS).alias("headers"),
        *(each.alias(DUE) for each in due),
        *(
            (F.col(each) if isinstance(each, str) else each).alias(f"_order{at}")
            for at, each in enumerate(order_by)
        ),
    )
    return _in_key_order(checked, len(order_by)).select("key", "value", "headers", *([DUE] if due else []))


def write(
    messages: DataFrame,
    topic: str,
    *,
    query: str,
    batch: int | str | None = None,
    row_id: Column | None = None,
    order_by: Sequence[str | Column] = (),
    more_headers: Mapping[str, Column] | None = None,
    priority: int | None = None,
    deliver_at: datetime | Column | None = None,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
) -> None:
    """Publishes the rows at least once; a row that is written again has the same `ps-id`.

    `messages` has the column `data` (bytes or text), and may have `ordering_key` (text) and `attributes` (a map of
    texts). `query` names the program, and `batch` this run of it (a date, a number): repeat a run with the same
    `batch`, and its rows get the same ids again. `row_id` is a column that names each row by itself (an order's
    number); without it a row's name is made of its content. One of `batch` and `row_id` must be given (default of both:
    None). `order_by` is the order of a key's rows (default: none). `more_headers` are reserved headers of kafka_pubsub
    (default: none). `priority` is that of all rows (default: the topic's); between priorities a key has no order.
    `deliver_at` is when rows are delivered, as a datetime with a time zone or as a column of timestamps: a delay router
    keeps a row back until then; a row whose time has passed, or is null, is published at once (default: all are).
    `bootstrap` is Kafka's address (default: KAFKA_PUBSUB_BOOTSTRAP). `config` are settings of the Java client (default:
    none).

    Example:
        orders = df.selectExpr("to_json(struct(*)) AS data", "user AS ordering_key")
        write(orders, "orders", query="daily-orders", batch="2026-01-14")
    """
    if deliver_at is not None:
        check_due(messages.sparkSession)
    found = records(
        messages,
        query=query,
        batch=batch,
        row_id=row_id,
        order_by=order_by,
        more_headers=more_headers,
        deliver_at=deliver_at,
    )
    connection = connection_of(bootstrap, config)
    target = target_of(messages.sparkSession, topic, connection, priority)
    write_records(found, target, connection)


def target_of(spark: SparkSession, topic: str, connection: Connection, priority: int | None = None) -> str:
    """Returns the Kafka topic of a lane of `topic`; None is the default priority.

    Raises `FailedPrecondition` for a causal topic, in which a record that its sequencer didn't write has no place, and
    for a lane that isn't there yet.
    """
    from ..reading.catalog import topic_of

    record = topic_of(spark, connection, topic)
    if record is None:
        if priority is not None:
            raise FailedPrecondition(
                f"priority {priority}: topic {topic!r} isn't in the catalog, so it has no lanes: leave it out"
            )
        return topic
    if record.options.causal:
        raise FailedPrecondition(
            f"topic {topic!r} is causal: a sequencer decides the order of its messages, and Spark can't ask it: write "
            "to a topic that isn't causal, or publish with PubSub"
        )
    lane = record.lane_rules.choose(priority, None)
    name = record.lane_rules.name(lane)
    if name != topic and name not in {each.name for each in record.lanes if each.topic_id}:
        raise FailedPrecondition(
            f"priority {priority}: no message of this priority was published to topic {topic!r} yet, so its lane isn't "
            "there, and Spark makes none: publish one with PubSub first"
        )
    return name


def write_records(found: DataFrame, topic: str, connection: Connection) -> None:
    """Publishes rows that `records` made."""
    from ..reading.messages import check_topics

    check_topics(found.sparkSession, topic, connection)
    options = connection.spark_options()
    if DUE in found.columns:
        found = delayed(found, topic, connection)
    else:
        options["topic"] = topic
    found.write.format("kafka").mode("append").options(**options).save()


def write_stream(
    messages: DataFrame,
    topic: str,
    *,
    query: str,
    checkpoint: str | os.PathLike[str],
    row_id: Column | None = None,
    order_by: Sequence[str | Column] = (),
    priority: int | None = None,
    deliver_at: datetime | Column | None = None,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    available_now: bool = False,
    every: str | None = None,
) -> StreamingQuery:
    """Publishes a stream's rows batch by batch; the rows of a repeated batch have the same ids.

    `query` names the stream; an id is made of it, the checkpoint's own id, the batch and the row. `checkpoint` is the
    directory that keeps how far the stream has come. `available_now=True` ends the stream when all is read (default:
    it goes on). `every` is how often a batch begins, e.g. "10 seconds" (default: as soon as the last one is finished).
    The other arguments are as for `write`.
    """
    if deliver_at is not None:
        check_due(messages.sparkSession)
        due_of(messages, deliver_at)
    connection, where = connection_of(bootstrap, config), f"{checkpoint}/metadata"
    target = target_of(messages.sparkSession, topic, connection, priority)
    ids: list[str] = []

    # Over Spark Connect a process of the server runs this function, so it refers to names only, not to a session.
    def publish(batch: DataFrame, number: int) -> None:
        if not ids:
            # With a new checkpoint the numbers of batches begin at 0 again, so the name has the checkpoint's id.
            ids.append(batch.sparkSession.read.json(where).collect()[0].id)
        name = f"{query}-{ids[0]}"
        found = records(
            batch, query=name, batch=number, row_id=row_id, order_by=order_by, deliver_at=deliver_at
        )
        write_records(found, target, connection)

    return start(messages, publish, query, str(checkpoint), available_now=available_now, every=every)


def start(
    frame: DataFrame,
    each_batch: Callable[[DataFrame, int], None],
    query: str,
    checkpoint: str,
    *,
    available_now: bool = False,
    once: bool = False,
    every: str | None = None,
    mode: str = "append",
) -> StreamingQuery:
    """Starts a stream that passes each batch and its number to a function.

    `available_now` ends it when all is read. `once` runs one batch: the one that is planned already, if there is one.
    `every` is how often a batch begins. By default it goes on, and a batch begins as soon as the last one is finished.
    """
    writer = frame.writeStream.queryName(query).outputMode(mode).option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(once=True)
    elif available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    writer = writer.foreachBatch(each_batch)
    for _ in range(LATE_STARTS):
        try:
            return writer.start()
        except Exception as error:
            if PYTHON_IS_LATE not in str(error):
                raise
    return writer.start()


def _run_name(query: str, batch: int | str | None, row_id: Column | None) -> list[str]:
    if not query or ":" in query:
        raise InvalidArgument(
            f"query {query!r}: give the writing query a name without a colon; its ids begin with it"
        )
    if batch is None and row_id is None:
        raise InvalidArgument(
            "batch: say which run this is (batch='2026-01-14'), or name each row (row_id=...): without either, equal "
            "rows of two runs would have one id, and a reader that leaves out repeats would lose the second"
        )
    if ":" in str(batch):
        raise InvalidArgument(f"batch {batch!r} has a colon, which ends it in an id: leave it out")
    return [query] if batch is None else [query, str(batch)]


def _check_columns(messages: DataFrame) -> None:
    types = dict(messages.dtypes)
    allowed = {
        "data": ("binary", "string"),
        "ordering_key": ("string",),
        "attributes": ("map<string,string>",),
    }
    if "data" not in types:
        raise InvalidArgument("the DataFrame has no column data: the body, as bytes or text")
    for name, kinds in allowed.items():
        if name in types and types[name] not in kinds:
            raise InvalidArgument(f"column {name} is {types[name]}, not {' or '.join(kinds)}: cast it")


def _header(name: str, value: Column) -> Column:
    full = name if name.startswith(RESERVED_HEADER_PREFIX) else RESERVED_HEADER_PREFIX + name
    return F.struct(F.lit(full).alias("key"), value.cast("binary").alias("value"))


def _checked_key(key: Column) -> Column:
    return (
        F.when(F.length(key) == 0, F.raise_error(F.lit("ordering_key cannot be empty; null means no order")))
        .when(
            F.length(key) > _MAX_KEY_BYTES,
            F.raise_error(F.lit(f"ordering_key exceeds maximum length of {_MAX_KEY_BYTES} bytes")),
        )
        .otherwise(key)
    )


def _checked_headers(attributes: Column) -> Column:
    entries = F.map_entries(attributes)
    ours = F.filter(entries, lambda each: each["key"].startswith(RESERVED_HEADER_PREFIX))
    said = F.concat(
        F.lit("attributes: the name '"),
        F.get(ours, F.lit(0))["key"],
        F.lit(f"' begins with '{RESERVED_HEADER_PREFIX}', which is reserved; choose another name"),
    )
    empty = F.filter(entries, lambda each: each["value"].isNull())
    null = F.concat(F.lit("attributes: the value of '"), F.get(empty, F.lit(0))["key"], F.lit("' is null"))
    texts = F.transform(
        entries, lambda each: F.struct(each["key"].alias("key"), each["value"].cast("binary").alias("value"))
    )
    return (
        F.when(attributes.isNull(), F.array().cast(_HEADERS))
        .when(F.size(ours) > 0, F.raise_error(said))
        .when(F.size(empty) > 0, F.raise_error(null))
        .otherwise(texts.cast(_HEADERS))
    )


def _row_name(messages: DataFrame, row_id: Column | None, due: Sequence[Column]) -> Column:
    if row_id is not None:
        return row_id.cast("string")
    parts = [F.coalesce(F.hex(F.col("data").cast("binary")), F.lit("-"))]
    if "ordering_key" in messages.columns:
        parts.append(F.coalesce(F.hex(F.col("ordering_key").cast("binary")), F.lit("-")))
    if "attributes" in messages.columns:
        # The map is compared as a sorted list, because Spark can't compare maps.
        parts.append(F.coalesce(F.to_json(F.array_sort(F.map_entries("attributes"))), F.lit("-")))
    parts += [F.coalesce(F.unix_micros(each).cast("string"), F.lit("-")) for each in due]
    digest = F.sha2(F.concat_ws("|", *parts), 256).substr(1, 32)
    equal = Window.partitionBy(digest).orderBy(F.lit(0))
    return F.concat_ws("-", digest, F.row_number().over(equal).cast("string"))


def _in_key_order(found: DataFrame, columns: int) -> DataFrame:
    # Rows without a key may be written by any task, so they are distributed by their id.
    ids = F.xxhash64(F.get(F.reverse("headers"), F.lit(0))["value"])
    together = found.repartition(F.coalesce(F.xxhash64("key"), ids))
    order = [f"_order{at}" for at in range(columns)]
    return together.sortWithinPartitions(*order) if order else together
