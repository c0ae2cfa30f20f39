"""A client on a cluster in memory, without services of its own: the tests start the routers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory import MemoryBackend


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend, services=False) as pubsub:
        yield pubsub
