"""Each conformance test runs over each backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.log.ports import Backend
from tests.contract.left_open import kafka_leaves_open, memory_leaves_open
from tests.contract.world import World


@pytest.fixture(scope="session")
def kafka_backend(kafka: RunningKafka) -> Iterator[Backend]:
    from kafka_pubsub.log.kafka.backend import KafkaBackend

    backend = KafkaBackend(kafka.bootstrap)
    yield backend
    backend.close()


def _memory() -> World:
    cluster = MemoryCluster()
    return World(
        MemoryBackend(cluster=cluster),
        lambda: MemoryBackend(cluster=cluster),
        # Seconds; the members that a test keeps alive are called far more often.
        lambda: MemoryBackend(cluster=cluster, session_timeout=1.0),
        memory_leaves_open(cluster),
    )


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The backend under test."""
    made = _memory() if request.param == "memory" else _kafka(request)
    yield made
    made.close()


def _kafka(request: pytest.FixtureRequest) -> World:
    from kafka_pubsub.log.kafka.backend import KafkaBackend

    backend: Backend = request.getfixturevalue("kafka_backend")
    bootstrap: str = request.getfixturevalue("kafka").bootstrap

    # Milliseconds, the least that a stock broker allows.
    impatient = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    return World(
        backend,
        lambda: KafkaBackend(bootstrap),
        lambda: KafkaBackend(bootstrap, dict(impatient)),
        kafka_leaves_open(bootstrap),
    )
