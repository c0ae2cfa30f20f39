"""A topic with lanes, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub, Topic
from kafka_pubsub.log.memory.backend import MemoryBackend


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        yield ps


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    """One partition: what comes first there is known."""
    return ps.create_topic("jobs", partitions=1, priorities=10, transient=True)
