"""Reads the offsets that a group has stored, from outside of the group.

Theory. A consumer that joins no group makes the request: with an admin client the answer "not the coordinator" ends
the process (librdkafka 2.16: its callback for such answers needs a group).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.kafka.bounded_calls import ask
from kafka_pubsub.log.kafka.client_factory import ANY_TOPIC, ClientFactory, Trouble
from kafka_pubsub.log.kafka.configuration import ConfigValue
from kafka_pubsub.log.kafka.conversions import committed_of
from kafka_pubsub.log.kafka.errors import error_of, is_denial
from kafka_pubsub.log.kafka.rights import Doing, Right, on_topics
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["ask_coordinator", "stored_offsets"]

_T = TypeVar("_T")

#: Seconds of the first request, after which it is looked for a reason.
_SLICE = 1.0


def stored_offsets(
    handles: ClientFactory, deadline: float, group: str, partitions: Sequence[TopicPartition], *, stable: bool
) -> Mapping[TopicPartition, Committed]:
    """Returns the stored positions; with `stable` it waits for those in open transactions."""
    asked = [KafkaPartition(*each) for each in partitions]
    topics = on_topics("DESCRIBE", *(each.topic for each in partitions))

    def answer(found: Sequence[KafkaPartition]) -> Mapping[TopicPartition, Committed]:
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {
            TopicPartition(each.topic, each.partition): committed_of(each)
            for each in found
            if each.offset != OFFSET_INVALID
        }

    try:
        return _ask(handles, deadline, group, asked, answer, *topics, stable=stable)
    except NotFound:
        return {}


def ask_coordinator(handles: ClientFactory, deadline: float, group: str) -> None:
    """Returns when the group's coordinator answers; raises `PermissionDenied` if this client may not see the group."""
    # Any partition does: only what is said about the group counts.
    _ask(handles, deadline, group, [KafkaPartition(ANY_TOPIC, 0)], lambda _: None, stable=False)


def _ask(
    handles: ClientFactory,
    deadline: float,
    group: str,
    asked: list[KafkaPartition],
    answer: Callable[[Sequence[KafkaPartition]], _T],
    *topics: Right,
    stable: bool,
) -> _T:
    """Returns `answer` of what the coordinator says about these partitions."""
    trouble = Trouble()
    rules: dict[str, ConfigValue] = {
        "group.id": group,
        "isolation.level": "read_committed" if stable else "read_uncommitted",
        "enable.auto.commit": False,
    }
    consumer = handles.consumer({}, rules, trouble.note)
    doing = Doing(f"position of group {group!r}", Right("DESCRIBE", "group", group), *topics)
    try:
        return ask(
            lambda left: answer(_committed(consumer, asked, left)),
            doing,
            address=handles.address,
            trouble=trouble,
            deadline=deadline,
        )
    finally:
        handles.close_consumer(consumer)


def _committed(consumer: Consumer, asked: list[KafkaPartition], seconds: float) -> Sequence[KafkaPartition]:
    """Asks for offsets; raises the reason, if there is one, instead of a time-out.

    A client that may not see the group finds no coordinator, and learns only beside the call that this is so.
    """
    end, longest = time.monotonic() + seconds, _SLICE
    while True:
        left = end - time.monotonic()
        try:
            found: Sequence[KafkaPartition] = consumer.committed(
                asked, timeout=max(0.001, min(left, longest))
            )
            return found
        except KafkaException as failure:
            if error_of(failure).code() != KafkaError._TIMED_OUT:
                raise
            event = consumer.poll(0)
            if event is not None and (reason := event.error()) is not None and is_denial(reason):
                raise KafkaException(reason) from None
            if left <= longest:
                raise
            longest *= 2  # a slow cluster must be able to answer
