"""A cluster in memory, and the log that the tests look into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.memory import MemoryBackend


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as pubsub:
        yield pubsub


@pytest.fixture
def topics(ps: PubSub) -> PubSub:
    """The client of a cluster with three causal topics."""
    for name in "abc":
        ps.create_topic(name, causal=True)
    return ps
