"""The text of a partition's news for the log: a message is named by its id, as everywhere."""

from __future__ import annotations

from typing import cast

from kafka_pubsub.model import StoredRecord, message_id_of
from kafka_pubsub.subscribe.partition.effects import Announce

__all__ = ["text_of"]


def text_of(said: Announce) -> str:
    """Returns what happened, with the message that it happened to."""
    message = "" if said.message is None else message_id_of(cast("StoredRecord", said.message))
    details = ": ".join(filter(None, (message, said.detail)))
    return f"{said.news.value} ({details})" if details else said.news.value
