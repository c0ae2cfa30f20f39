"""A driver without enough memory or without Java: one line names the cause and what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafka_pubsub import FailedPrecondition, PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import ROOT
from tests.spark.needs import need_spark


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'x'", "replay: Spark's memory ran out (java.lang.OutOfMemoryError: Java heap space)"),
        ("cast(data AS string)", "replay: Spark's "),
    ],
    ids=["of the driver", "of a task"],
)
def test_too_little_memory(kafka: RunningKafka, name: str, text: str, said: str) -> None:
    need_spark()
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1).publish(b"x").result(30)
    options = ["--topic", name, "--to", name, "--dry-run", "--master", "local[1]"]
    options += ["--where", f"length(repeat({text}, 2000000000)) > 0"]
    options += ["--conf", "spark.driver.memory=600m", "--conf", "spark.ui.enabled=false"]
    command = [sys.executable, "-m", "kafka_pubsub", "-b", kafka.bootstrap, "spark", "run", "replay"]
    ran = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert said in last
    assert "ran out" in last
    assert "--conf spark.driver.memory=4g" in last


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark.base.spark_session import _check_java

    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(
        FailedPrecondition, match=r"no Java for Spark: install a JDK 17 or 21 .*or set JAVA_HOME"
    ):
        _check_java()
