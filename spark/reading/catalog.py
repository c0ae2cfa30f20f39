"""Reads the catalog's records as Spark reads any topic, without the client of kafka_pubsub.

Rule: a record that can't be read is left out and noted; the other records are read all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_pubsub.config import SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import NotFound, SchemaError

from ..base.connection import Connection
from .messages import raw_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CATALOG_TOPIC", "subscriptions_of", "topic_of"]

CATALOG_TOPIC = "_kafka_pubsub.catalog"
_SUBSCRIPTION, _TOPIC = b"subscription:", b"topic:"


def subscriptions_of(
    spark: SparkSession, connection: Connection, topic: str, note: Callable[[str], None]
) -> list[SubscriptionRecord]:
    """Returns the subscriptions of a topic, sorted by name; none if there is no catalog."""
    found = []
    for key, value in sorted(_latest(spark, connection).items()):
        if not key.startswith(_SUBSCRIPTION) or value is None:
            continue
        try:
            record = SubscriptionRecord.model_validate_json(value)
        except Exception as error:
            note(f"the catalog's record {key.decode('utf-8', 'replace')!r} can't be read: {error}")
            continue
        if record.topic == topic and not record.detached and record.state == "ready":
            found.append(record)
    return found


def topic_of(spark: SparkSession, connection: Connection, name: str) -> TopicRecord | None:
    """Returns what the catalog says of a topic; None: nothing. Raises `SchemaError` for a record that can't be read."""
    value = _latest(spark, connection).get(_TOPIC + name.encode())
    if value is None:
        return None
    try:
        return TopicRecord.model_validate_json(value)
    except ValueError as error:
        raise SchemaError(f"the catalog's record of topic {name!r} can't be read: {error}") from error


def _latest(spark: SparkSession, connection: Connection) -> dict[bytes, bytes | None]:
    """Returns the latest record of each key; nothing if there is no catalog."""
    try:
        records = raw_records(spark, CATALOG_TOPIC, connection).select("key", "value", "offset")
    except NotFound:
        return {}
    # Python sorts the records, because the catalog is small and Spark would read it twice to sort it.
    rows = sorted(records.collect(), key=lambda row: int(row.offset))
    return {bytes(row.key or b""): None if row.value is None else bytes(row.value) for row in rows}
