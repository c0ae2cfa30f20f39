"""Just enough of a Kafka client to see whether a broker keeps what it acknowledged."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

# The broker is taken away on purpose; that librdkafka finds it gone is no news.
QUIET = {"log_level": 0}


def create_topic(bootstrap: str) -> str:
    name = f"local-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    return name


def append(bootstrap: str, topic: str, *values: bytes, patience_s: float = 30) -> None:
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=note)
    assert producer.flush(patience_s) == 0
    assert failures == []


def contents(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, **QUIET})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()
