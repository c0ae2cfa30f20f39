"""A topic with lanes, in memory."""

from __future__ import annotations

import pytest

from kafka_pubsub import PubSub, Topic


@pytest.fixture
def topic(ps: PubSub) -> Topic:
    """A single partition: what comes first there is known."""
    return ps.create_topic("jobs", partitions=1, priorities=10, transient=True)
