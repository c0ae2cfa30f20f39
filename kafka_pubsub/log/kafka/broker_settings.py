"""Reads settings of the brokers.

Rules
1. Each broker is asked itself: such a setting is read from its own file. All are asked at once.
2. A setting may stay unknown: the right is missing, a hosted cluster doesn't show it, or a broker is away.
"""

from __future__ import annotations

import concurrent.futures
from typing import Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kafka_pubsub.log.kafka.errors import error_of

__all__ = ["least_setting"]

#: Seconds for a broker's answer; it takes milliseconds.
_PATIENCE = 2.0

#: Answers to a client without the right.
_FORBIDDEN = frozenset(
    {KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION, KafkaError.UNSUPPORTED_VERSION}
)

_T = TypeVar("_T")


class Wait(Protocol):
    """Waits for an answer."""

    def __call__(self, answer: concurrent.futures.Future[_T], /) -> _T:
        """Returns the answer, or raises its error."""
        ...


def least_setting(client: AdminClient, name: str, wait: Wait) -> int | None:
    """Returns the least value of a numeric setting among the brokers that show it; None: no broker does."""
    try:
        nodes = wait(client.describe_cluster(request_timeout=_PATIENCE)).nodes
    except KafkaException as failure:
        if error_of(failure).code() in _FORBIDDEN:
            return None
        raise
    asked = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
    answers = [client.describe_configs([each], request_timeout=_PATIENCE)[each] for each in asked]
    values = []
    for answer in answers:
        try:
            entry = wait(answer).get(name)
        except KafkaException:
            continue
        if entry is not None and entry.value is not None:
            values.append(int(entry.value))
    return min(values, default=None)
