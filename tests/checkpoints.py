"""Writes checkpoints into a log in memory, for tests of their readers."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.log.memory import MemoryCluster
from kafka_pubsub.model import Header, Run
from kafka_pubsub.subscribe.formats.checkpoint import MOST, Checkpoint, Log, Named, split
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why, retry_headers
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints

__all__ = ["headers", "made", "write"]


def made(*retry: Run, main: Sequence[Run] = (), nonce: int = 5, topic_id: str = "id") -> Checkpoint:
    """A checkpoint of both logs from their beginnings on."""
    return Checkpoint(nonce, 7, 0, Log(topic_id, 0, tuple(main)), Log("retry-id", 0, tuple(retry)))


def headers(nonce: int = 5, topic_id: str = "id") -> list[Header]:
    """The fields of a record of a checkpoint."""
    info = RetryInfo(topic_id, 0, nonce, why=Why.CHECKPOINT)
    return [*retry_headers(None, info), checkpoints.header()]


def write(
    cluster: MemoryCluster,
    topic: str,
    *retry: Run,
    main: Sequence[Run] = (),
    nonce: int = 5,
    topic_id: str = "id",
    transaction: str | None = None,
    most: int = MOST,
) -> Named:
    """A checkpoint is written into partition 0 of a retry topic; how commits name it."""
    offsets = []
    for part in split(made(*retry, main=main, nonce=nonce, topic_id=topic_id), most):
        value = checkpoints.encode(part)
        stored = cluster.append(topic, 0, value, None, headers(nonce, topic_id), transaction=transaction)
        offsets.append(stored.offset() or 0)
    return Named(offsets[0], nonce)
