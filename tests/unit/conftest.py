"""A cluster in memory with a single process on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def cluster(backend: MemoryBackend) -> MemoryCluster:
    return backend.cluster


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as opened:
        yield opened
