"""Reads the offsets that a group has stored, from outside of the group.

Theory. A consumer that joins no group makes the request: with an admin client the answer "not the coordinator" ends
the process (librdkafka 2.16: its callback for such answers needs a group).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import NotFound
from kafka_pubsub.kafka.bounded_calls import ask
from kafka_pubsub.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.kafka.configuration import ConfigValue
from kafka_pubsub.kafka.conversions import committed_of
from kafka_pubsub.kafka.rights import Doing, Right, on_topics
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["stored_offsets"]


def stored_offsets(
    handles: ClientFactory, deadline: float, group: str, partitions: Sequence[TopicPartition], *, stable: bool
) -> Mapping[TopicPartition, Committed]:
    """Returns the stored positions; with `stable` it waits for those in open transactions."""
    trouble = Trouble()
    rules: dict[str, ConfigValue] = {
        "group.id": group,
        "isolation.level": "read_committed" if stable else "read_uncommitted",
        "enable.auto.commit": False,
    }
    consumer = handles.consumer({}, rules, trouble.note)

    def offsets(left: float) -> Mapping[TopicPartition, Committed]:
        found = consumer.committed([KafkaPartition(*each) for each in partitions], timeout=left)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {
            TopicPartition(each.topic, each.partition): committed_of(each)
            for each in found
            if each.offset != OFFSET_INVALID
        }

    topics = on_topics("DESCRIBE", *(each.topic for each in partitions))
    doing = Doing(f"position of group {group!r}", Right("DESCRIBE", "group", group), *topics)
    try:
        return ask(offsets, doing, address=handles.address, trouble=trouble, deadline=deadline)
    except NotFound:
        return {}
    finally:
        handles.close_consumer(consumer)
