"""A Kafka in memory, and two workers on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kafka_pubsub import PubSub
from tests.unit.worker.rest.workers import Workers


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory() as pubsub:
        pubsub.create_topic("orders", partitions=2)
        yield pubsub


@pytest.fixture
def workers(ps: PubSub) -> Iterator[Workers]:
    made = Workers(ps, 2)
    yield made
    made.stop()


@pytest.fixture
def client(workers: Workers) -> TestClient:
    return workers.clients[0]
