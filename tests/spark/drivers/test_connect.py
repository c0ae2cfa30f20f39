"""Spark Connect: a client without Java reads, decodes and writes; a job names the command to run instead."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.spark.drivers.group import ROOT
from tests.spark.session.support import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENT = [sys.executable, "-m", "tests.spark.drivers.connected"]


def filled(bootstrap: str, name: str) -> str:
    """Makes topics with a few messages; returns the name of an empty topic."""
    target = f"{name}-to"
    with PubSub(bootstrap) as ps:
        ps.create_topic(name, partitions=2)
        ps.create_topic(f"{name}-rows", partitions=2)
        ps.create_topic(target, partitions=1)
        ps.create_subscription(f"{name}-sub", topic=name)
        for number in range(6):
            key = "ann" if number < 4 else "bob"
            body = struct.pack("<d", number)
            seq = str(number + 1 if number < 4 else number - 3)
            ps.topic(name).publish(body, ordering_key=key, attributes={"seq": seq}).result(30)
            row = json.dumps({"action": "INSERT", "data": {"n": number}, "temp": number, "type": "login"})
            at = str(1_800_000_000 + number * 60)
            rows = ps.topic(f"{name}-rows")
            rows.publish(row.encode(), ordering_key=f"{key}:{number}", attributes={"at": at}).result(30)
    return target


def seen_by_client(
    spark: SparkSession, tmp_path: Path, bootstrap: str, source: str, target: str
) -> dict[str, Any]:
    """The view of a client of a server of its own, where there is no Java."""
    from spark.base.spark_session import bundle, connect_options
    from tests.spark.connect import connect_server

    # Of ours the server has that zip only; its jars are those that this session has fetched.
    zipped = bundle(tmp_path / "kafka_pubsub.zip")
    packages, _, *options = connect_options(spark.version, zipped)
    assert packages == "--packages"
    options += ["--jars", spark.sparkContext.getConf().get("spark.jars") or ""]
    with connect_server(tmp_path, options, zipped) as url:
        ran = subprocess.run(
            [*CLIENT, url, bootstrap, source, target, tmp_path],
            cwd=ROOT,
            env={**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere", "SPARK_HOME": "/nowhere"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert (tmp_path / "late").exists()
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return seen


def test_a_client_without_java(spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path) -> None:
    target = filled(kafka.bootstrap, name)
    Runner(spark, kafka.bootstrap)("archive", topics=[name], to=f"{tmp_path}/archive")
    seen = seen_by_client(spark, tmp_path, kafka.bootstrap, name, target)
    assert seen.pop("session") == "pyspark.sql.connect.session"
    assert seen.pop("read") == [["ann", str(n)] for n in range(1, 5)] + [["bob", "1"], ["bob", "2"]]
    assert seen.pop("avro") == [float(n) for n in range(6)]
    assert seen.pop("archived") == 6
    assert seen.pop("written") == [8, 8, 6]
    assert seen.pop("lanes") == [[0, True]]
    for each in ("job", "job in it"):
        assert "run it with spark-submit $(kafka-pubsub spark submit-args) archive, or" in seen.pop(each)
    # No row of that topic has an amount.
    assert seen.pop("own job") == [0, 6]
    assert seen.pop("subscription") is True
    nowhere = f"doesn't exist on {kafka.bootstrap}"
    assert seen.pop("no topic") == f"NotFound: topic '{name}-none' {nowhere}"
    assert seen.pop("no target") == f"NotFound: topic '{target}-none' {nowhere}"
    for each in ("not an archive", "another table"):
        assert "isn't an archive of kafka_pubsub: " in seen.pop(each)
    assert not seen


def test_a_server_that_isn_t_there_is_told_soon() -> None:
    from spark.base.spark_session import _connected

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"sc://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(FailedPrecondition, match=f"no Spark Connect server answers at {url}"):
            _connected(url, {})
