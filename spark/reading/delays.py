"""Turns records of the delay topics into rows of the messages that wait; no other module does this.

Theory. The rules are those of `kafka_pubsub/delays/waiting.py`: of the messages that aren't home those wait that lie
above the handled position of their log, and those below it that rest in a router's memory.

Rules
1. A message of ingest came in at the time of the log there: the highest stamp of a broker up to it. One without a
   stamp came in with the first record behind it that has one.
2. A message that lies in two places hopped while the logs were read: the later place counts.
3. A message that a request to cancel is for doesn't wait. A request of ingest counts if its message is due after the
   request came in; a request of a tier counts always.
4. Records that aren't ours are left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, Window
from pyspark.sql import functions as F

from kafka_pubsub.delays.layout import INGEST, UNIT
from kafka_pubsub.delays.records import CANCEL_HEADER, DELAY_HEADER, VERSION
from kafka_pubsub.log.sealed import schema_text
from kafka_pubsub.model import RESERVED_HEADER_PREFIX

from .avro import by_avro
from .python_decoder import BODY, SCHEMA_ID
from .rows import attributes_of, header_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OF_INGEST", "PROGRESS", "WAITING", "delay_records", "waiting_rows"]

#: The columns of `waiting_rows`.
WAITING = (
    "message_id string, topic string, ordering_key string, data binary, attributes map<string,string>, "
    "deliver_at timestamp, tier int, partition int, offset bigint"
)
#: The columns of the routers' progress: how far each log is handled, with the mark and the time of its partition.
PROGRESS = "source int, partition int, handled bigint, mark_due bigint, mark_offset bigint, begin_time bigint"
#: The source of the records of ingest; the source of the records of tier k is k.
OF_INGEST = -1

_REQUEST, _DELAYED, _CANCEL = range(1, 4)
_SCHEMAS = {_REQUEST: "delay_request", _DELAYED: "delayed", _CANCEL: "delay_cancel"}
#: How Spark tells that a broker set the timestamp (Kafka's LogAppendTime).
_OF_BROKER = 1
_CHECKSUM = 4
_HEADERS = "array<struct<key:string,value:binary>>"


def delay_records(records: DataFrame) -> DataFrame:
    """Decodes records of Spark's source (with headers) from the topics of the delays.

    Of ingest all records are kept, since each tells the time.
    """
    records = records.withColumn("headers", F.coalesce("headers", F.array().cast(_HEADERS)))
    in_ingest = F.col("topic") == INGEST
    delay, cancel = header_value(DELAY_HEADER), header_value(CANCEL_HEADER)
    kind = (
        F.when(in_ingest & delay.isNotNull(), _REQUEST)
        .when(cancel.isNotNull(), _CANCEL)
        .when(delay.isNotNull(), _DELAYED)
    )
    records = records.withColumn(SCHEMA_ID, kind)
    body = F.when(F.col(SCHEMA_ID) == _CANCEL, _opened(cancel)).otherwise(_opened(delay))
    # With numbers of schemas all kinds are decoded in one step, into the fields of all of them.
    written = {number: _schema(name) for number, name in _SCHEMAS.items()}
    writers = {number: json.dumps(each) for number, each in written.items()}
    found = by_avro(records.withColumn(BODY, body), json.dumps(_reader(written)), writers)
    said = F.col("record")
    is_request = F.col(SCHEMA_ID) == _REQUEST
    is_sound = said.isNotNull() & F.coalesce(_is_sound(said), F.lit(False))
    return found.where(is_sound | in_ingest).select(
        F.when(in_ingest, OF_INGEST).otherwise(F.substring("topic", -2, 2).cast("int")).alias("source"),
        "partition",
        "offset",
        F.when(is_sound, F.col(SCHEMA_ID)).alias("kind"),
        F.when(F.col("timestampType") == _OF_BROKER, F.unix_millis("timestamp")).alias("stamp"),
        F.split(said["home"], "#")[0].alias("home"),
        *(_whole(said[name]).alias(name) for name in ("due", "delay", "left", "target")),
        F.when(is_request, F.col("offset")).otherwise(_whole(said["offset"])).alias("came"),
        "key",
        "value",
        "headers",
    )


def _whole(number: Column) -> Column:
    return number.cast("bigint")


def _opened(header: Column) -> Column:
    """Returns the Avro of a header; null if it is damaged, or of an unknown version."""
    size = F.length(header)
    sealed = F.substring(header, F.lit(1), size - _CHECKSUM)
    checksum = F.conv(F.hex(F.substring(header, size - _CHECKSUM + 1, F.lit(_CHECKSUM))), 16, 10)
    known = (F.crc32(sealed) == checksum.cast("bigint")) & (
        F.substring(header, 1, 1) == F.lit(bytes([VERSION]))
    )
    return F.when((size > _CHECKSUM) & known, F.substring(sealed, F.lit(2), size))


def _schema(name: str) -> dict[str, Any]:
    """Returns the schema of one kind; all have one name, because a decoder compares the names."""
    text = schema_text(name, VERSION)
    fields = [{"name": each["name"], "type": each["type"]} for each in json.loads(text)["fields"]]
    return {"type": "record", "name": "said", "fields": fields}


def _reader(written: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Returns a schema that has the fields of all kinds; null where a kind doesn't have a field.

    All numbers are read as doubles, as some were written: whole and below 2**53, so nothing is lost.
    """
    names = dict.fromkeys(field["name"] for each in written.values() for field in each["fields"])
    fields = [
        {"name": name, "type": ["null", "string" if name == "home" else "double"], "default": None}
        for name in names
    ]
    return {"type": "record", "name": "said", "fields": fields}


def _is_sound(said: Column) -> Column:
    """Returns whether the fields of a record can be; the conditions are those of `delays/records.py`."""
    one_time = said["due"].isNull() != said["delay"].isNull()
    kind = F.col(SCHEMA_ID)
    return (
        F.when(kind == _REQUEST, one_time & (said["home"] != ""))
        .when(kind == _DELAYED, (said["left"] >= 0) & (said["offset"] >= 0))
        .when(kind == _CANCEL, (said["left"] >= 0) & (said["target"] >= 0))
        .otherwise(F.lit(True))
    )


def waiting_rows(records: DataFrame, progress: DataFrame) -> DataFrame:
    """Returns the messages that wait, with the columns `WAITING`.

    `records` come from `delay_records`, from each log's committed position on. `progress` has the columns `PROGRESS`.
    """
    records = records.join(F.broadcast(progress), ["source", "partition"])
    dated = _dated(records.where(F.col("source") == OF_INGEST))
    tiers = records.where(F.col("source") != OF_INGEST).withColumn("came_at", F.lit(None).cast("bigint"))
    both = dated.unionByName(tiers.withColumn("rests", F.col("left") == 0))
    messages = both.where(F.col("kind").isin(_REQUEST, _DELAYED) & _waits())
    cancels = both.where((F.col("kind") == _CANCEL) & _counts())
    cancels = cancels.select(
        "partition", F.coalesce("due", F.lit(0)).alias("due"), F.col("target").alias("came")
    )
    kept = _last_places(messages).join(cancels, ["partition", "due", "came"], "left_anti")
    return _shown(kept)


def _dated(ingest: DataFrame) -> DataFrame:
    """Adds `came_at` to records of ingest, null if none was stamped since; `due` is when a message is due then."""
    log = Window.partitionBy("partition").orderBy("offset")
    so_far = log.rowsBetween(Window.unboundedPreceding, 0)
    time = F.greatest("begin_time", F.max("stamp").over(so_far))
    # A record without a stamp came in with the first one behind it that has one.
    onwards = log.rowsBetween(0, Window.unboundedFollowing)
    came_at = F.first(F.when(F.col("stamp").isNotNull(), F.col("time_now")), ignorenulls=True).over(onwards)
    found = ingest.withColumn("time_now", time).withColumn("came_at", came_at).drop("time_now")
    due = F.greatest("came_at", F.coalesce("due", F.col("came_at") + F.col("delay")))
    of_request = (F.col("kind") == _REQUEST) & F.col("came_at").isNotNull()
    found = found.withColumn("due", F.when(of_request, due).otherwise(F.col("due")))
    return found.withColumn("rests", F.col("due") - F.col("came_at") < UNIT)


def _waits() -> Column:
    """Returns whether a message isn't home, and wasn't handled in its log or rests in memory."""
    in_time = (F.col("due") > F.col("mark_due")) | (
        (F.col("due") == F.col("mark_due")) & (F.col("came") > F.col("mark_offset"))
    )
    is_undated = (F.col("source") == OF_INGEST) & F.col("came_at").isNull()
    return is_undated | (in_time & (F.col("rests") | (F.col("offset") >= F.col("handled"))))


def _counts() -> Column:
    """Returns whether a request to cancel came in before its message was due."""
    return (F.col("source") != OF_INGEST) | F.coalesce(F.col("due") > F.col("came_at"), F.lit(False))


def _last_places(messages: DataFrame) -> DataFrame:
    """Keeps one place of each message: that in the smallest tier, because the way leads to smaller tiers."""
    in_ingest = F.col("source") == OF_INGEST
    way = Window.partitionBy("partition", "came").orderBy(in_ingest, "source", F.desc("offset"))
    return messages.withColumn("_place", F.row_number().over(way)).where("_place = 1").drop("_place")


def _shown(messages: DataFrame) -> DataFrame:
    theirs = F.filter("headers", lambda h: ~h["key"].startswith(RESERVED_HEADER_PREFIX))
    # The key is the home topic's name, a zero byte, and the ordering key.
    own = F.substring("key", F.octet_length("home") + 2, F.length("key")).cast("string")
    return messages.select(
        F.concat_ws(":", F.lit(INGEST), "partition", "came").alias("message_id"),
        F.col("home").alias("topic"),
        own.alias("ordering_key"),
        F.col("value").alias("data"),
        attributes_of(theirs).alias("attributes"),
        F.timestamp_millis("due").alias("deliver_at"),
        F.when(F.col("source") != OF_INGEST, F.col("source")).alias("tier"),
        "partition",
        "offset",
    )
