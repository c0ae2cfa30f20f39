"""Only Spark's Kafka source is needed always: parts that need spark-avro or Delta name the missing jar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from kafka_pubsub import PubSub
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_without_avro_and_delta(spark: SparkSession, kafka: RunningKafka, name: str) -> None:
    with PubSub(kafka.bootstrap) as ps:
        ps.create_topic(name, partitions=1)
        ps.topic(name).publish(b"x").result(30)
    jars = (spark.sparkContext.getConf().get("spark.jars") or "").split(",")
    few = ",".join(jar for jar in jars if "spark-avro" not in jar and "io.delta" not in jar)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.drivers.few_jars", kafka.bootstrap, name],
        cwd=ROOT,
        env={
            **os.environ,
            "KAFKA_PUBSUB_SPARK_PACKAGES": "",
            "PYSPARK_SUBMIT_ARGS": f"--jars {few} pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    seen = json.loads(ran.stdout.splitlines()[-1])
    assert seen.pop("read") == 1
    assert "needs the package org.apache.spark:spark-avro" in seen.pop("avro")
    for each in ("delta", "table"):
        assert "this Spark session has no Delta Lake" in seen[each]
        assert "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in seen[each]
