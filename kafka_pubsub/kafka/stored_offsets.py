"""What a group has stored, asked from outside of it.

Theory. The question comes from a consumer that joins nothing: an answer "not the coordinator" kills the process when it
meets an admin client (librdkafka 2.16: its callback of such answers wants a group).
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
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["stored_offsets"]


def stored_offsets(
    handles: ClientFactory, deadline: float, group: str, partitions: Sequence[KafkaPartition], *, stable: bool
) -> Mapping[TopicPartition, Committed]:
    """The positions that are stored; `stable`: those of open transactions are waited for, not passed over."""
    trouble = Trouble()
    rules: dict[str, ConfigValue] = {
        "group.id": group,
        "isolation.level": "read_committed" if stable else "read_uncommitted",
        "enable.auto.commit": False,
    }
    consumer = handles.consumer({}, rules, trouble.note)

    def offsets(left: float) -> Mapping[TopicPartition, Committed]:
        found = consumer.committed(list(partitions), timeout=left)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return {
            TopicPartition(each.topic, each.partition): committed_of(each)
            for each in found
            if each.offset != OFFSET_INVALID
        }

    doing = f"position of group {group!r}"
    try:
        return ask(offsets, doing, address=handles.address, trouble=trouble, deadline=deadline)
    except NotFound:
        return {}
    finally:
        handles.close_consumer(consumer)
