"""Peer: librdkafka's share consumer (preview), implicit acknowledgement, without order."""

from __future__ import annotations

import time

from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["pull"]


def pull(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """`poll` in a loop; a batch is accepted by the next poll."""
    _start_at_the_beginning(bootstrap, group)
    meter = Meter(warmup, measured)
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    deadline = time.monotonic() + patience
    read_on = True
    while read_on and time.monotonic() < deadline:
        count = 0
        for message in consumer.poll(1.0):
            message.key(), message.value(), message.partition(), message.offset()
            count += 1
        read_on = meter.many(count)
    consumer.close()
    return {"rate": meter.rate(), "note": "keeps no order; preview"}


def _start_at_the_beginning(bootstrap: str, group: str) -> None:
    # A share group has no reset setting in its client: the broker keeps the setting with the group.
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(timeout=30)
