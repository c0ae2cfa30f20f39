"""Messages to causal topics that are staged without a publisher, which would wait for their receipts."""

from __future__ import annotations

from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.values import Stage
from kafka_pubsub.model import NewRecord
from kafka_pubsub.ports import Backend
from kafka_pubsub.schema.batch import BatchMessage, encode_batch
from kafka_pubsub.schema.multicast import StageRecord, encode_stage

__all__ = ["stage"]


def stage(backend: Backend, *names: str, message: str, count: int = 1) -> None:
    """Stages a batch of messages to topics of one partition; their bodies are the batch's name."""
    header = encode_stage(StageRecord(Stage(message, names), 0))
    value = encode_batch([BatchMessage(0, None, message.encode(), ())] * count)
    records = [NewRecord(inbox_topic(name), 0, None, value, [header]) for name in names]
    backend.transactions(f"stage-{message}").transact(records, {}, None)
