"""Asks for the ids of many topics at once."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from kafka_pubsub.log.kafka.errors import UNKNOWN_TOPIC, error_of

__all__ = ["topic_ids"]


def topic_ids(
    client: AdminClient,
    names: Sequence[str],
    seconds: float,
    wait: Callable[[concurrent.futures.Future[TopicDescription]], TopicDescription],
) -> Mapping[str, str]:
    """Returns the ids by one request; leaves out topics that the broker doesn't find."""
    found: dict[str, str] = {}
    asked = client.describe_topics(TopicCollection(list(names)), request_timeout=seconds)
    for name, answer in asked.items():
        try:
            found[name] = str(wait(answer).topic_id)
        except KafkaException as failure:
            if error_of(failure).code() not in UNKNOWN_TOPIC:
                raise
    return found
