"""A cluster in memory with causal topics; the tests start the sequencers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.multicast.service import Sequencer
from tests.unit.multicast.wrong_brokers import Wrong

PATIENCE = 20.0


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


@pytest.fixture
def faults() -> Wrong:
    return Wrong()


@pytest.fixture
def sequencer(backend: MemoryBackend, topics: PubSub, faults: Wrong) -> Iterator[Sequencer]:
    """A sequencer whose brokers may be wrong; the publishers' are right."""
    with (
        PubSub.in_memory(MemoryBackend(cluster=backend.cluster, faults=faults), services=False) as other,
        Sequencer(other) as running,
    ):
        yield running.wait_until_running(PATIENCE)
