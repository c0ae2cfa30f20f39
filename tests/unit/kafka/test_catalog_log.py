"""Reading the catalog while its topic's leader moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.kafka.admin import KafkaAdmin
from kafka_pubsub.kafka.client_factory import ClientFactory
from kafka_pubsub.kafka.compacted_log import CatalogLog
from kafka_pubsub.model import TopicInfo


class Consumer:
    """A consumer that asks the leader it remembers until its metadata is asked for again; the topic is empty."""

    def __init__(self) -> None:
        self.asked = 0
        self._knows_the_leader = False

    def assign(self, _: object) -> None: ...
    def resume(self, _: object) -> None: ...
    def pause(self, _: object) -> None: ...
    def seek(self, _: object) -> None: ...

    def consume(self, *_: object) -> list[object]:
        return [SimpleNamespace(error=lambda: END, offset=lambda: 0, key=lambda: None)]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        self.asked += 1
        if not self._knows_the_leader:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 0, 0

    def list_topics(self, *_: object, **__: object) -> None:
        self._knows_the_leader = True


END = KafkaError(KafkaError._PARTITION_EOF)


def test_a_leader_that_has_moved_is_looked_for() -> None:
    consumer = Consumer()
    handles = SimpleNamespace(check=lambda: None, address="nowhere", consumer=lambda *_: consumer)
    admin = SimpleNamespace(
        topic=lambda name: TopicInfo(name, "id", 1, 1, 1000, {"cleanup.policy": "compact"})
    )
    log = CatalogLog(cast("ClientFactory", handles), cast("KafkaAdmin", admin), create=False)
    assert log.values() == {}
    assert consumer.asked == 2
