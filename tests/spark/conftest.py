"""Spark for the tests: a session for all of session/, and a session for each test elsewhere that asks.

A local session. KAFKA_PUBSUB_SPARK_MASTER=standalone runs it on a cluster of a master and two workers, as CI
does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from kafka_pubsub.local import LocalKafka
from tests.spark.needs import SHORT_LIVED, need_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Small, because the rows are few and every partition is a task.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # For a cluster: nothing starts before both executors are there, or one would get all the work.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.executor.syncLogLevel.enabled": "true",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the suite."""
    need_spark()
    from spark.base.spark_session import session
    from tests.spark.standalone import chosen_master

    # Python workers must be the interpreter that runs the tests.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = tmp_path_factory.mktemp("warehouse")
    with chosen_master() as master:
        made = session("tests", master=master, conf={**SMALL, "spark.sql.warehouse.dir": str(warehouse)})
        yield made
        made.stop()


@pytest.fixture
def broker() -> Iterator[str]:
    """A Kafka of this test's own, because its delay topics are those of all topics."""
    with LocalKafka() as kafka:
        yield kafka.bootstrap


@pytest.fixture
def name() -> str:
    """A topic name of this test's own."""
    return f"spark-{uuid4().hex[:12]}"


def pytest_configure(config: pytest.Config) -> None:
    """The mark of tests that take minutes each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Streams and Delta tables take many small steps: on a machine that others use they need minutes."""
    for item in items:
        if "/tests/spark/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))
