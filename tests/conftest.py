"""The one real broker that all tests of a session share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka, running_kafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """A real Kafka: the one at KAFKA_PUBSUB_TEST_BOOTSTRAP, else an ephemeral one for this session."""
    with running_kafka(tmp_path_factory) as broker:
        yield broker
