"""Messages to causal topics that are staged without a publisher, which would wait for their receipts."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import NewRecord
from kafka_pubsub.multicast.batch import BatchMessage, encode_batch
from kafka_pubsub.multicast.layout import participant
from kafka_pubsub.multicast.records import StageRecord, encode_stage
from kafka_pubsub.multicast.values import Stage
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["named", "stage"]


def named(backend: Backend, *names: str) -> tuple[str, ...]:
    """Returns the participants of topics of a partition, as the catalog has them."""
    topics = backend.catalog.topics()
    return tuple(participant(each, 0, topics[each].inbox_id) for each in names)


def stage(
    backend: Backend,
    *names: str,
    message: str,
    count: int = 1,
    participants: Sequence[str] = (),
    to: Sequence[str] = (),
) -> None:
    """Stages a batch of messages to topics of a partition; their bodies are the batch's name.

    `participants`: as the stage names them (default: as the catalog does). `to`: the topics in whose inboxes it is
    written (default: all of them).
    """
    header = encode_stage(StageRecord(Stage(message, tuple(participants) or named(backend, *names)), 0))
    value = encode_batch([BatchMessage(0, None, message.encode(), ())] * count)
    records = [NewRecord(inbox_topic(name), 0, None, value, [header]) for name in to or names]
    backend.transactions(f"stage-{message}").transact(records, {}, None)
