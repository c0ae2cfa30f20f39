"""A broker that stores less beside a position than Kafka's default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub
from kafka_pubsub.local import LocalKafka, broker_process
from kafka_pubsub.local.node_config import NodeSettings, server_properties
from kafka_pubsub.log.kafka.admin import KafkaAdmin

PATIENCE = 60.0


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def with_small_metadata(settings: NodeSettings, log_dir: Path) -> str:
        return (
            server_properties(settings, log_dir) + "offset.metadata.max.bytes=8\n"
        )  # the shortest text has 12

    monkeypatch.setattr(broker_process, "server_properties", with_small_metadata)
    with LocalKafka() as kafka:
        yield kafka.bootstrap


def test_it_is_refused_with_the_setting_and_its_value(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PubSub(bootstrap) as ps:
        ps.create_topic("orders", partitions=1)
        with pytest.raises(
            FailedPrecondition, match=r"offset\.metadata\.max\.bytes=8, and a subscription needs 4096"
        ):
            ps.create_subscription("billing", "orders")
        assert ps.list_subscriptions() == []

        # As without the right to see brokers' settings.
        monkeypatch.setattr(KafkaAdmin, "metadata_limit", lambda self: None)

    def ack(message: Message) -> None:
        message.ack()

    with PubSub(bootstrap) as ps:
        sub = ps.create_subscription("billing", "orders", message_ordering=True)
        with sub.pull(ack) as stream:
            ps.topic("orders").publish(b"1", ordering_key="k").result(PATIENCE)
            with pytest.raises(InvalidArgument, match=r"set offset\.metadata\.max\.bytes on every broker"):
                stream.result(PATIENCE)
