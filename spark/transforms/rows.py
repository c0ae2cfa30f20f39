"""The one place where a Kafka record becomes a row.

Theory. A record of a home topic is a message as it lies there. A record of a retry topic is the same message,
moved: its header `ps-retry` says where it was published. A dead letter says so in texts (`ps-dead-*`), a
replayed message in `ps-replayed`. What later issues bring (lanes, delays, revisions of schemas) is read here
and nowhere else.

Rules
1. Expressions only: no Python runs for a record.
2. Nothing of a record is lost: `key` and `headers` hold its bytes, beside the columns that read them as text. A
   body that is null is a tombstone.
3. Whatever can't be read as ours is an ordinary message, as for a subscription.
4. Control records of ours (a command in a retry topic) are no messages, and left out.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.core.retry_record import RETRY_HEADER, Why
from kafka_pubsub.model import RESERVED_HEADER_PREFIX

__all__ = [
    "COLUMNS",
    "REPLAYED_HEADER",
    "attributes_of",
    "header_text",
    "header_value",
    "is_retry",
    "retry_number",
    "rows",
]

COLUMNS = (
    "data",
    "ordering_key",
    "attributes",
    "message_id",
    "publish_time",
    "origin",
    "topic",
    "partition",
    "offset",
    "key",
    "headers",
)

#: Says of which message this is a replay: topic, partition and offset, with colons.
REPLAYED_HEADER = RESERVED_HEADER_PREFIX + "replayed"
_ID_HEADER = RESERVED_HEADER_PREFIX + "id"
_DEAD = RESERVED_HEADER_PREFIX + "dead-"
_RETRY_TOPIC = r"^(.+)\.sub\..+\.retry$"
_PLACE = r"^(.+):(\d{1,9}):(\d{1,18})$"

#: Where the numbers of `ps-retry` stand (core/retry_record.py): first byte from 1, and how many bytes.
_RETRY_NUMBERS = {
    "version": (1, 1),
    "why": (2, 1),
    "partition": (3, 4),
    "origin": (7, 8),
    "attempt": (15, 2),
    "crashes": (17, 1),
    "due": (18, 8),
    "failed": (26, 8),
}
_FIXED = 36
_CHECKSUM = 4


def header_value(name: str) -> Column:
    """The first value of a header that isn't null, as bytes; null if there is none."""
    named = F.filter("headers", lambda h: (h["key"] == name) & h["value"].isNotNull())
    return F.get(named, F.lit(0))["value"]


def header_text(name: str) -> Column:
    """The same as text."""
    return header_value(name).cast("string")


def retry_number(name: str) -> Column:
    """A number of the header `ps-retry`; null without one."""
    start, size = _RETRY_NUMBERS[name]
    return F.conv(F.hex(F.substring(header_value(RETRY_HEADER), start, size)), 16, 10).cast("bigint")


def is_retry() -> Column:
    """True for a record of a retry topic whose header is whole and the only one of its name."""
    value = header_value(RETRY_HEADER)
    body = F.substring(value, F.lit(1), F.length(value) - _CHECKSUM)
    said = F.conv(F.hex(F.substring(value, F.length(value) - _CHECKSUM + 1, F.lit(_CHECKSUM))), 16, 10)
    alone = F.size(F.filter("headers", lambda h: h["key"] == RETRY_HEADER)) == 1
    whole = (F.length(value) >= _FIXED + _CHECKSUM) & (F.crc32(body) == said.cast("bigint"))
    return F.coalesce(
        F.col("topic").rlike(_RETRY_TOPIC) & alone & (retry_number("version") == 1) & whole, F.lit(False)
    )


def attributes_of(headers: Column) -> Column:
    """The headers that aren't ours as a map of texts; of a repeated name the last value, as for a subscription."""
    theirs = F.filter(
        F.coalesce(headers, F.array().cast("array<struct<key:string,value:binary>>")),
        lambda h: ~h["key"].startswith(RESERVED_HEADER_PREFIX),
    )
    texts = F.transform(
        theirs, lambda h: F.struct(h["key"], F.coalesce(h["value"].cast("string"), F.lit("")).alias("value"))
    )
    names = F.transform(texts, lambda h: h["key"])
    # Whatever the session says about keys that come twice, here the last one wins; most records never get to that.
    return F.when(F.size(F.array_distinct(names)) == F.size(names), F.map_from_entries(texts)).otherwise(
        F.map_from_entries(_last_of_each(texts))
    )


def _last_of_each(texts: Column) -> Column:
    names = F.transform(texts, lambda h: h["key"])
    backwards = F.reverse(names)
    return F.filter(
        texts, lambda h, i: i == F.size(texts) - F.array_position(backwards, h["key"]).cast("int")
    )


def _place(topic: Column, partition: Column, offset: Column) -> Column:
    return F.struct(
        topic.cast("string").alias("topic"),
        partition.cast("int").alias("partition"),
        offset.cast("bigint").alias("offset"),
    )


def _origin(retry: Column) -> Column:
    """Where the message was published: here, unless a header of ours says otherwise."""
    died = header_text(_DEAD + "offset")
    replayed = header_text(REPLAYED_HEADER)
    number = r"^\d{1,18}$"
    return (
        F.when(
            retry,
            _place(
                F.regexp_extract("topic", _RETRY_TOPIC, 1), retry_number("partition"), retry_number("origin")
            ),
        )
        .when(
            died.rlike(number) & header_text(_DEAD + "partition").rlike(r"^\d{1,9}$"),
            _place(header_text(_DEAD + "topic"), header_text(_DEAD + "partition"), died),
        )
        .when(
            replayed.rlike(_PLACE),
            _place(*(F.regexp_extract(replayed, _PLACE, part) for part in (1, 2, 3))),
        )
        .otherwise(_place(F.col("topic"), F.col("partition"), F.col("offset")))
    )


def rows(records: DataFrame) -> DataFrame:
    """Messages, of the records as Spark's source gives them (with headers)."""
    told = records.withColumn("_retry", is_retry())
    messages = told.where(~(F.col("_retry") & (retry_number("why") == int(Why.RELEASE))))
    own = F.when(F.col("_retry"), _origin(F.col("_retry"))).otherwise(
        _place(F.col("topic"), F.col("partition"), F.col("offset"))
    )
    position = F.concat_ws(":", own["topic"], own["partition"], own["offset"])
    return messages.select(
        F.col("value").alias("data"),
        F.col("key").cast("string").alias("ordering_key"),
        attributes_of(F.col("headers")).alias("attributes"),
        F.coalesce(header_text(_ID_HEADER), position).alias("message_id"),
        F.greatest(F.col("timestamp"), F.timestamp_seconds(F.lit(0))).alias("publish_time"),
        _origin(F.col("_retry")).alias("origin"),
        "topic",
        "partition",
        "offset",
        "key",
        "headers",
    )
