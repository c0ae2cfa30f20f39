"""Fixtures of the acceptance tests: one `PubSub` a test on the session's real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import Deliveries, Room


@pytest.fixture
def ps(kafka: RunningKafka) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def room(ps: PubSub) -> Room:
    return Room(ps)


@pytest.fixture
def log() -> Deliveries:
    return Deliveries()
