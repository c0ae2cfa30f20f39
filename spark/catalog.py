"""Reads the catalog's subscriptions as Spark reads any topic, without the client of kafka_pubsub.

Rule: a record that can't be read is left out and noted; the other records are read all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka_pubsub.config import SubscriptionRecord

from .connection import Connection
from .remote_cluster import cluster_of
from .transforms.messages import raw_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CATALOG_TOPIC", "subscriptions_of"]

CATALOG_TOPIC = "_kafka_pubsub.catalog"
_PREFIX = b"subscription:"


def subscriptions_of(
    spark: SparkSession, connection: Connection, topic: str, note: Callable[[str], None]
) -> list[SubscriptionRecord]:
    """Returns the subscriptions of a topic, sorted by name; none if there is no catalog."""
    with cluster_of(spark, connection) as cluster:
        if CATALOG_TOPIC not in cluster.topics():
            return []
    records = raw_records(spark, CATALOG_TOPIC, connection).select("key", "value", "offset")
    latest: dict[bytes, bytes | None] = {}
    # Python sorts the records, because the catalog is small and Spark would read it twice to sort it.
    for row in sorted(records.collect(), key=lambda row: int(row.offset)):
        latest[bytes(row.key or b"")] = None if row.value is None else bytes(row.value)
    found = []
    for key, value in sorted(latest.items()):
        if not key.startswith(_PREFIX) or value is None:
            continue
        try:
            record = SubscriptionRecord.model_validate_json(value)
        except Exception as error:
            note(f"the catalog's record {key.decode('utf-8', 'replace')!r} can't be read: {error}")
            continue
        if record.topic == topic and not record.detached and record.state == "ready":
            found.append(record)
    return found
