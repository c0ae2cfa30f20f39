"""`--metrics-port`: Prometheus' text, by Spark's own sink, tells how much a streaming job has read."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import PATIENCE, DriverGroup
from tests.spark.session.support import publish
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURE = re.compile(r'^metrics_(\w+)_Value\{type="gauges"\} (\S+)$', re.MULTILINE)


def figures(port: int) -> dict[str, float]:
    """The served text; empty while nothing answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics/prometheus", timeout=5) as page:
            return {
                name: float(value) for name, value in FIGURE.findall(page.read().decode()) if value != "NaN"
            }
    except OSError:
        return {}


def test_a_job_s_progress_is_served_as_prometheus_text(
    spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path
) -> None:
    from tests.spark.drivers.scene import command

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        publish(ps, name, [(f"k{n % 3}", str(n)) for n in range(30)])
        options = ["--topic", name, "--to", str(tmp_path / "archive"), "--follow", "--every", "1 second"]
        options += ["--max-per-batch", "20", "--metrics-port", str(port)]
        words = command(kafka.bootstrap, "archive", *options, master="local[1]")
        # A setting of the user's would win, and these tests have no page.
        words.remove("--conf=spark.ui.enabled=false")
        # It would leave out the lines for a person.
        words.remove("--json")
        prefix = "kafka_pubsub_driver_AccumulatorSource_archive_"
        seen: dict[str, float] = {}

        def shown(driver: DriverGroup, read: int) -> bool:
            driver.check()
            seen.update(figures(port))
            return seen.get(f"{prefix}messages_read") == read

        with DriverGroup(spark, words, tmp_path / "said") as driver:
            until(lambda: shown(driver, 30), "the backlog", PATIENCE)
            publish(ps, name, [("k0", "more")])
            until(lambda: shown(driver, 31), "one more", PATIENCE)
    assert seen[f"{prefix}behind"] == 0
    assert f"{prefix}messages_per_second" in seen
    # Spark's own are beside them.
    assert any(figure.endswith("_BlockManager_memory_memUsed_MB") for figure in seen)
    text = driver.said()
    assert re.search(rf"metrics: http://\S+:{port}/metrics/prometheus", text)
    assert re.search(r"batch 0: 20 messages read, [\d,]+ a second, 10 behind the log's end", text)
