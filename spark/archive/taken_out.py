"""Takes messages out of an archive on purpose, and notes them, so that an audit doesn't take them for lost.

Theory. An audit compares an archive with its log message by message, and what only the log has is a gap. So what is
taken out is noted: of a key (`forget`) its hash, and up to which offset of which partition, in a table beside the
archive; of old dates (`drop_before`) the first date that is kept, in the archive's properties.

Rules
1. The note comes before the deletion. A command that was killed in between is repeated, and an audit finds nothing
   meanwhile: it compares such messages neither in the archive nor in the log. It reads the notes after it has chosen
   the archive's version.
2. What is published with a forgotten key later is archived and compared like everything else.
3. Neither the notes nor the conditions that Delta keeps in its history hold a key, only its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Row
from pyspark.sql import functions as F

from kafka_pubsub.lane_names import every_name

from ..base.tables import Layout, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["TakenOut", "drop_before", "forget", "taken_out"]

_FORGOTTEN = Layout("forgotten keys", partitions=(), statistics=())
_COLUMNS = "topic string, topic_id string, partition int, hash string, last bigint"
_KEPT_FROM = "kafka_pubsub.kept_from"


def forget(table: Table, keys: Sequence[str], topics: Collection[str], rejects: Table) -> int:
    """Deletes the messages of these keys from an archive, and from its table of rejected rows if that is there.

    With `topics` only those of these topics and their lanes. Returns how many were deleted from the archive.
    """
    names = [name for topic in topics for name in every_name(topic)]
    found = table.read().where(F.col("ordering_key").isin(list(keys)))
    if names:
        found = found.where(F.col("topic").isin(names))
    topic_id = F.col("topic_id") if "topic_id" in found.columns else F.lit(None).cast("string")
    places = (
        found.groupBy("topic", topic_id.alias("topic_id"), "partition", F.sha2("key", 256).alias("hash"))
        .agg(F.max("offset").alias("last"), F.min("offset").alias("first"))
        .collect()
    )
    deleted = 0
    if places:
        notes = [(row.topic, row.topic_id, row.partition, row.hash, row.last) for row in places]
        _notes_of(table).add(table.spark.createDataFrame(notes, _COLUMNS).coalesce(1), "forget")
        deleted = table.delete(" OR ".join(map(_condition, places)))
    if rejects.query() is not None:
        hashes = ", ".join(f"'{hashlib.sha256(key.encode()).hexdigest()}'" for key in keys)
        of_topics = f" AND topic IN ({', '.join(map(repr, names))})" if names else ""
        rejects.delete(f"sha2(key, 256) IN ({hashes}){of_topics}")
    return deleted


def _notes_of(table: Table) -> Table:
    """Returns the table of an archive's forgotten keys, which may not exist."""
    return table.beside("forgotten", _FORGOTTEN)


def _condition(place: Row) -> str:
    """Returns the condition for the messages of a key: Delta skips files by their place."""
    topic_id = "" if place.topic_id is None else f" AND topic_id = '{place.topic_id}'"
    return (
        f"(topic = '{place.topic}' AND partition = {place.partition}{topic_id} "
        f"AND offset BETWEEN {place['first']} AND {place.last} AND sha2(key, 256) = '{place.hash}')"
    )


def drop_before(table: Table, first: date) -> int:
    """Deletes an archive's messages that were published before a date (UTC), and returns how many there were."""
    if (table.properties().get(_KEPT_FROM) or "") < first.isoformat():
        table.set_property(_KEPT_FROM, first.isoformat())
    return table.delete(f"date < DATE '{first.isoformat()}'")


class TakenOut(NamedTuple):
    """What was taken out of an archive: what was published before a date (""), and forgotten keys (None: none)."""

    before: str
    places: DataFrame | None

    def others(self, messages: DataFrame) -> DataFrame:
        """Returns the messages that weren't taken out; they have their key, place and `publish_time`."""
        if self.before:
            messages = messages.where(F.to_date("publish_time") >= F.lit(self.before).cast("date"))
        if self.places is None:
            return messages
        hashed = messages.withColumn("hash", F.sha2("key", 256))
        found = hashed.join(F.broadcast(self.places), ["topic", "partition", "hash"], "left")
        return found.where("last is null OR offset > last").drop("hash", "last")

    def facts(self) -> dict[str, object]:
        """Returns the facts for an outcome."""
        keys = 0 if self.places is None else self.places.select("hash").distinct().count()
        return {"before": self.before or None, "keys": keys}


def taken_out(table: Table, topic_ids: Collection[str]) -> TakenOut:
    """Returns what was taken out of an archive of the messages of these topics, by their ids."""
    before = table.properties().get(_KEPT_FROM) or ""
    notes = _notes_of(table)
    if notes.query() is None:
        return TakenOut(before, None)
    # Of one version: the archive and the log are compared by the same notes.
    mine = notes.read(version=notes.version()).where(F.coalesce("topic_id", F.lit("")).isin("", *topic_ids))
    return TakenOut(before, mine.groupBy("topic", "partition", "hash").agg(F.max("last").alias("last")))
