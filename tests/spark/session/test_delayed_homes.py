"""Delayed messages come home once for Spark, too, though routers are killed in their transactions."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import DelayRouter, PubSub
from tests.integration.delays.home import Home, publish
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Seconds for an answer on a busy machine.
PATIENCE = 60.0


@pytest.mark.parametrize("phase", ["written", "committing", "committed"])
def test_spark_sees_each_message_once_though_a_router_is_killed(
    spark: SparkSession, broker: str, tmp_path: Path, phase: str
) -> None:
    """A stream that runs meanwhile and a batch that reads afterwards see a plain consumer's records."""
    from spark.reading.messages import messages

    streamed: list[str] = []

    def take(rows: DataFrame, _: int) -> None:
        streamed.extend(row.message_id for row in rows.select("message_id").collect())

    with PubSub(broker) as ps:
        topic = ps.create_topic("home", partitions=2)
        command = [sys.executable, "-m", "tests.integration.delays.killed_router", broker, phase, "2"]
        with subprocess.Popen(command) as killed:
            until(lambda: ps.delays.routers() == 1)
            query = (
                messages(spark, ["home"], bootstrap=broker, stream=True)
                .writeStream.foreachBatch(take)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(processingTime="200 milliseconds")
                .start()
            )
            published = publish(topic, 60)
            try:
                assert killed.wait(PATIENCE) == -signal.SIGKILL
            finally:
                killed.kill()
        with DelayRouter(ps):
            Home(ps, topic).receive(published)
            wanted = sorted(published.by_id)
            until(lambda: len(streamed) >= len(wanted))
            query.processAllAvailable()
            query.stop()
    assert sorted(streamed) == wanted
    batch = messages(spark, ["home"], bootstrap=broker).select("message_id").collect()
    assert sorted(row.message_id for row in batch) == wanted
