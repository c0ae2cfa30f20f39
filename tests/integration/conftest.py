"""A cluster for the tests of several folders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.local_cluster import LocalCluster


@pytest.fixture
def cluster(kafka: RunningKafka) -> Iterator[LocalCluster]:
    """Three brokers of a test's own. After `kafka`, which skips when there can be none."""
    with LocalCluster(3) as cluster:
        yield cluster
