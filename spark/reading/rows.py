"""Turns Kafka records into rows; no other module does this.

Theory. A record of a home topic is a message. A record of a retry topic is the same message after a move: its header
`ps-retry` says where it was published. A dead letter says this in texts (`ps-dead-*`), a replayed message in
`ps-replayed`. Only this module reads these headers into rows.

Rules
1. There are only Spark expressions: no Python runs for a record.
2. Nothing of a record is lost: `key` and `headers` hold its bytes, beside the columns that read them as text. A
   body that is null is a tombstone.
3. A record whose headers of kafka_pubsub can't be read is an ordinary message, as it is for a subscription.
   `message_id` is that of the message at home, wherever the record lies: `ps-id` says it where it was relayed.
4. Control records (a command in a retry topic, a checkpoint) aren't messages, and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.model import RESERVED_HEADER_PREFIX
from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, RETRY_HEADER

__all__ = [
    "COLUMNS",
    "REPLAYED_HEADER",
    "attributes_of",
    "header_text",
    "header_value",
    "is_message",
    "is_retry",
    "may_be_retry",
    "published",
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

#: The header that says which message was replayed: topic, partition and offset, separated by colons.
REPLAYED_HEADER = RESERVED_HEADER_PREFIX + "replayed"
_ID_HEADER = RESERVED_HEADER_PREFIX + "id"
_PUBLISHED_HEADER = RESERVED_HEADER_PREFIX + "published"
_DEAD = RESERVED_HEADER_PREFIX + "dead-"
_RETRY_TOPIC = r"^(.+)\.sub\..+\.retry$"
_PLACE = r"^(.+):(\d{1,9}):(\d{1,18})$"

#: The numbers in `ps-retry` (formats/record.py): for each its first byte, counted from 1, and its number of bytes.
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
_HEADERS = "array<struct<key:string,value:binary>>"
_CHECKSUM = 4
_UNLIKELY = b"\x1a"


def header_value(name: str, headers: str = "headers") -> Column:
    """Returns the first value of a header that isn't null, as bytes; null if there is none."""
    named = F.filter(headers, lambda h: (h["key"] == name) & h["value"].isNotNull())
    return F.get(named, F.lit(0))["value"]


def header_text(name: str, headers: str = "headers") -> Column:
    """Returns the first value of a header that isn't null, as text; null if there is none."""
    return header_value(name, headers).cast("string")


def retry_number(name: str, headers: str = "headers") -> Column:
    """Returns a number from the header `ps-retry`; null if there is no such header."""
    start, size = _RETRY_NUMBERS[name]
    said = F.hex(F.substring(header_value(RETRY_HEADER, headers), start, size))
    return F.conv(said, 16, 10).cast("bigint")


def is_retry(headers: str = "headers") -> Column:
    """Returns whether a record lies in a retry topic and has exactly one header `ps-retry`, which is undamaged."""
    value = header_value(RETRY_HEADER, headers)
    body = F.substring(value, F.lit(1), F.length(value) - _CHECKSUM)
    said = F.conv(F.hex(F.substring(value, F.length(value) - _CHECKSUM + 1, F.lit(_CHECKSUM))), 16, 10)
    alone = F.size(F.filter(headers, lambda h: h["key"] == RETRY_HEADER)) == 1
    whole = (F.length(value) >= _FIXED + _CHECKSUM) & (F.crc32(body) == said.cast("bigint"))
    sound = alone & (retry_number("version", headers) == 1) & whole
    return F.coalesce(F.col("topic").rlike(_RETRY_TOPIC) & sound, F.lit(False))


def is_message(headers: str = "headers") -> Column:
    """Returns whether a record of a retry topic is a message, by its header `ps-retry`."""
    return ~retry_number("why", headers).isin(sorted(map(int, NO_MESSAGES)))


def attributes_of(theirs: Column) -> Column:
    """Returns the publisher's headers as a map of texts; a repeated name has its last value, as for a subscription."""
    names, values = theirs["key"], theirs["value"]
    # `array_contains` is null, never false, for an array with a null. If it finds the value by chance, the slower way
    # below gives the same result.
    whole = F.coalesce(~F.array_contains(values, F.lit(_UNLIKELY)), F.lit(False))
    texts = F.when(whole, values.cast("array<string>")).otherwise(F.transform(theirs, _text))
    once = (F.size(names) <= 1) | (F.size(F.array_distinct(names)) == F.size(names))
    # The last value of a repeated name counts, whatever the session's setting is. Few records have such a name.
    entries = F.transform(theirs, lambda h: F.struct(h["key"], _text(h).alias("value")))
    return F.when(once, F.map_from_arrays(names, texts)).otherwise(F.map_from_entries(_last_of_each(entries)))


def _text(header: Column) -> Column:
    return F.coalesce(header["value"].cast("string"), F.lit(""))


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


def _moved(retry: Column) -> Column:
    """Returns where a message of a retry topic was published; null for other records."""
    return F.when(
        retry,
        _place(
            F.regexp_extract("topic", _RETRY_TOPIC, 1),
            retry_number("partition"),
            retry_number("origin"),
        ),
    )


def _told() -> Column:
    """Returns where a dead letter or a replayed message says that it was published; null for other records."""
    died = header_text(_DEAD + "offset")
    replayed = header_text(REPLAYED_HEADER)
    partition = header_text(_DEAD + "partition")
    return F.when(
        died.rlike(r"^\d{1,18}$") & partition.rlike(r"^\d{1,9}$"),
        _place(header_text(_DEAD + "topic"), partition, died),
    ).when(replayed.rlike(_PLACE), _place(*(F.regexp_extract(replayed, _PLACE, part) for part in (1, 2, 3))))


def may_be_retry(topic: str) -> bool:
    """Returns whether a topic of this name is a retry topic."""
    return re.fullmatch(_RETRY_TOPIC, topic) is not None


def _all_theirs(headers: Column) -> Column:
    """Returns whether no header has a reserved name; it doesn't call a function for each header.

    It may be false by chance for a header of the publisher.
    """
    names = F.concat(F.lit("\n"), F.array_join(headers["key"], "\n"))
    return ~names.contains(f"\n{RESERVED_HEADER_PREFIX}")


def published() -> Column:
    """Returns when a record was published; the beginning of 1970 if its producer gave no time.

    That is its timestamp, unless it came home through a sequencer: then its publisher's time is in a header.
    """
    stamp = F.greatest(F.col("timestamp"), F.timestamp_seconds(F.lit(0)))
    said = header_text(_PUBLISHED_HEADER)
    told = F.when(said.rlike(r"^\d{1,14}$"), F.timestamp_millis(said.cast("bigint")))
    plain = _all_theirs(F.coalesce(F.col("headers"), F.array().cast(_HEADERS)))
    return F.when(plain, stamp).otherwise(F.coalesce(told, stamp))


def rows(
    records: DataFrame, *, retry_topics: bool = True, beside: Mapping[str, Column] | None = None
) -> DataFrame:
    """Turns records of Spark's source (with headers) into messages, with the columns `COLUMNS`.

    `retry_topics=False` says that no record lies in a retry topic, which makes the plan half as large (default: some
    may). `beside` are more columns, computed from the record in the same step (default: none).
    """
    headers = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
    # Most records have no reserved header, and a function that is called for each header costs more than all the rest.
    plain = _all_theirs(headers)
    theirs = F.filter(headers, lambda h: ~h["key"].startswith(RESERVED_HEADER_PREFIX))
    here = _place(F.col("topic"), F.col("partition"), F.col("offset"))
    own, moved = here, F.lit(None)
    # Without retry topics there is only one step, because each step copies the body again.
    if retry_topics:
        records = records.withColumn("_retry", is_retry())
        records = records.where(~(F.col("_retry") & ~is_message()))
        records = records.withColumn("_moved", _moved(F.col("_retry")))
        moved = F.col("_moved")
        own = F.coalesce(moved, here)
    position = F.concat_ws(":", own["topic"], own["partition"], own["offset"])
    return records.select(
        F.col("value").alias("data"),
        F.col("key").cast("string").alias("ordering_key"),
        F.when(plain, attributes_of(headers)).otherwise(attributes_of(theirs)).alias("attributes"),
        F.when(plain, position).otherwise(F.coalesce(header_text(_ID_HEADER), position)).alias("message_id"),
        published().alias("publish_time"),
        F.when(plain, here).otherwise(F.coalesce(moved, _told(), here)).alias("origin"),
        # Spark's source doesn't say that the topic is never null, and a write partitioned by topic would then need one
        # more step, to check for nulls.
        F.coalesce("topic", F.lit("")).alias("topic"),
        "partition",
        "offset",
        "key",
        "headers",
        *(column.alias(name) for name, column in (beside or {}).items()),
    )
