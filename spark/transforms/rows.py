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
4. Control records of ours (a command in a retry topic, a checkpoint) are no messages, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafka_pubsub.core.retry.record import NO_MESSAGES, RETRY_HEADER
from kafka_pubsub.model import RESERVED_HEADER_PREFIX

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

#: Says of which message this is a replay: topic, partition and offset, with colons.
REPLAYED_HEADER = RESERVED_HEADER_PREFIX + "replayed"
_ID_HEADER = RESERVED_HEADER_PREFIX + "id"
_DEAD = RESERVED_HEADER_PREFIX + "dead-"
_RETRY_TOPIC = r"^(.+)\.sub\..+\.retry$"
_PLACE = r"^(.+):(\d{1,9}):(\d{1,18})$"

#: Where the numbers of `ps-retry` stand (core/retry/record.py): first byte from 1, and how many bytes.
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
    """The first value of a header that isn't null, as bytes; null if there is none."""
    named = F.filter(headers, lambda h: (h["key"] == name) & h["value"].isNotNull())
    return F.get(named, F.lit(0))["value"]


def header_text(name: str, headers: str = "headers") -> Column:
    """The same as text."""
    return header_value(name, headers).cast("string")


def retry_number(name: str, headers: str = "headers") -> Column:
    """A number of the header `ps-retry`; null without one."""
    start, size = _RETRY_NUMBERS[name]
    said = F.hex(F.substring(header_value(RETRY_HEADER, headers), start, size))
    return F.conv(said, 16, 10).cast("bigint")


def is_retry(headers: str = "headers") -> Column:
    """True for a record of a retry topic whose header is whole and the only one of its name."""
    value = header_value(RETRY_HEADER, headers)
    body = F.substring(value, F.lit(1), F.length(value) - _CHECKSUM)
    said = F.conv(F.hex(F.substring(value, F.length(value) - _CHECKSUM + 1, F.lit(_CHECKSUM))), 16, 10)
    alone = F.size(F.filter(headers, lambda h: h["key"] == RETRY_HEADER)) == 1
    whole = (F.length(value) >= _FIXED + _CHECKSUM) & (F.crc32(body) == said.cast("bigint"))
    sound = alone & (retry_number("version", headers) == 1) & whole
    return F.coalesce(F.col("topic").rlike(_RETRY_TOPIC) & sound, F.lit(False))


def is_message(headers: str = "headers") -> Column:
    """Whether a record of a retry topic is a message, by what `ps-retry` says."""
    return ~retry_number("why", headers).isin(sorted(map(int, NO_MESSAGES)))


def attributes_of(theirs: Column) -> Column:
    """Headers that aren't ours as a map of texts; of a repeated name the last value, as for a subscription."""
    names, values = theirs["key"], theirs["value"]
    # With a null in it an array has no "no" to `array_contains`; a value found by chance costs time only.
    whole = F.coalesce(~F.array_contains(values, F.lit(_UNLIKELY)), F.lit(False))
    texts = F.when(whole, values.cast("array<string>")).otherwise(F.transform(theirs, _text))
    once = (F.size(names) <= 1) | (F.size(F.array_distinct(names)) == F.size(names))
    # Whatever the session says about keys that come twice, here the last one wins; most records never get to that.
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
    """Where a message of a retry topic was published; null for another."""
    return F.when(
        retry,
        _place(
            F.regexp_extract("topic", _RETRY_TOPIC, 1),
            retry_number("partition"),
            retry_number("origin"),
        ),
    )


def _told() -> Column:
    """Where a dead letter or a replay says that it comes from; null if neither."""
    died = header_text(_DEAD + "offset")
    replayed = header_text(REPLAYED_HEADER)
    partition = header_text(_DEAD + "partition")
    return F.when(
        died.rlike(r"^\d{1,18}$") & partition.rlike(r"^\d{1,9}$"),
        _place(header_text(_DEAD + "topic"), partition, died),
    ).when(replayed.rlike(_PLACE), _place(*(F.regexp_extract(replayed, _PLACE, part) for part in (1, 2, 3))))


def may_be_retry(topic: str) -> bool:
    """Whether a topic of this name holds a subscription's moved messages."""
    return re.fullmatch(_RETRY_TOPIC, topic) is not None


def _all_theirs(headers: Column) -> Column:
    """True only if no header is ours, found without a look at each."""
    names = F.concat(F.lit("\n"), F.array_join(headers["key"], "\n"))
    return ~names.contains(f"\n{RESERVED_HEADER_PREFIX}")


def published() -> Column:
    """When a record was published; the beginning of time for one of a producer that doesn't say."""
    return F.greatest(F.col("timestamp"), F.timestamp_seconds(F.lit(0)))


def rows(
    records: DataFrame, *, retry_topics: bool = True, beside: Mapping[str, Column] | None = None
) -> DataFrame:
    """Messages, of the records as Spark's source gives them (with headers).

    `retry_topics=False` says that none of them lies in a retry topic, which makes the plan half as large. `beside`
    are more columns, found of the record in the same step.
    """
    headers = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
    # Most records have none of ours, and a function that is called for each header costs more than all the rest.
    plain = _all_theirs(headers)
    theirs = F.filter(headers, lambda h: ~h["key"].startswith(RESERVED_HEADER_PREFIX))
    here = _place(F.col("topic"), F.col("partition"), F.col("offset"))
    own, moved = here, F.lit(None)
    # Without retry topics all is one step, because each step copies the body again.
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
        # Spark's source doesn't say that it is never null, and who writes by topic would look for nulls: a step more.
        F.coalesce("topic", F.lit("")).alias("topic"),
        "partition",
        "offset",
        "key",
        "headers",
        *(column.alias(name) for name, column in (beside or {}).items()),
    )
