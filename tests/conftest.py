"""The one real broker that all tests of a session share, and how hard the property tests search.

KAFKA_PUBSUB_HYPOTHESIS=deep searches fifty times longer. In CI the search is the same at every run: a red build
is red again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafka_pubsub.local.pytest_plugin import RunningKafka, running_kafka

# No deadlines: they would measure the machine's other tenants.
settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile(
    "deep", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("KAFKA_PUBSUB_HYPOTHESIS", "default"))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """A real Kafka: the one at KAFKA_PUBSUB_TEST_BOOTSTRAP, else an ephemeral one for this session."""
    with running_kafka(tmp_path_factory) as broker:
        yield broker
