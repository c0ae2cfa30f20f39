"""Messages to causal topics that are staged without a publisher, which would wait for their receipts."""

from __future__ import annotations

from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.values import Stage
from kafka_pubsub.model import NewRecord
from kafka_pubsub.ports import Backend
from kafka_pubsub.schema.multicast import StageRecord, encode_stage

__all__ = ["stage"]


def stage(backend: Backend, *names: str, message: str) -> None:
    """Stages a message to topics of one partition; its body is its id."""
    header = encode_stage(StageRecord(Stage(message, names), 0))
    records = [NewRecord(inbox_topic(name), 0, None, message.encode(), [header]) for name in names]
    backend.transactions(f"stage-{message}").transact(records, {}, None)
