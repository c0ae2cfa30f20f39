"""The time at which a record of ingest was stored, by its broker's clock."""

from __future__ import annotations

from typing import Final

from kafka_pubsub.model import StoredRecord

__all__ = ["stamp_of"]

#: The kind of timestamp that a broker sets (Kafka's LogAppendTime).
_OF_BROKER: Final = 2


def stamp_of(record: StoredRecord) -> int | None:
    """Returns the broker's time, in milliseconds since 1970; None: no broker stamped the record."""
    kind, time = record.timestamp()
    return time if kind == _OF_BROKER else None
