"""Spark's format `kafka_pubsub`: the small tables say the same as the client; a wrong option is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_pubsub import DeadLetterPolicy, PubSub
from kafka_pubsub.errors import InvalidArgument
from tests.support import until
from tests.unit.house.repository import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def table(spark: SparkSession, name: str, bootstrap: str, **options: str) -> DataFrame:
    from spark import register_tables

    register_tables(spark)
    source = spark.read.format("kafka_pubsub").option("kafka.bootstrap.servers", bootstrap)
    return source.options(table=name, **options).load()


def test_each_table_says_what_the_client_says(spark: SparkSession, broker: str) -> None:
    assert table(spark, "waiting", broker).count() == 0, "no topics were made yet"
    assert table(spark, "catalog", broker).count() == 0
    with PubSub(broker) as ps:
        topic = ps.create_topic("orders", partitions=2)
        ps.create_topic("orders.dead", partitions=1)
        dead = DeadLetterPolicy(topic="orders.dead", max_attempts=1)
        billing = ps.create_subscription(
            "billing", topic="orders", message_ordering=True, dead_letter=dead, labels={"team": "shop"}
        )
        ps.create_subscription("plain", topic="orders")
        named = topic.publish(
            b"x", ordering_key="ann", attributes={"a": "ü"}, delay=timedelta(hours=1).total_seconds()
        ).result(30)
        (row,) = table(spark, "waiting", broker).selectExpr("*", "unix_millis(deliver_at) AS due").collect()
        (client_s,) = ps.delays.waiting()
        assert (row.message_id, row.topic, row.ordering_key) == (named, "orders", "ann")
        assert (bytes(row.data), row.attributes, row.tier) == (b"x", {"a": "ü"}, client_s.tier)
        assert client_s.due is not None
        assert row.due == round(client_s.due.timestamp() * 1000)

        of_billing, of_plain = table(spark, "subscriptions", broker).orderBy("name").collect()
        assert (of_billing.topic, of_billing.message_ordering, of_billing.dead_letter_topic) == (
            "orders",
            True,
            "orders.dead",
        )
        assert (of_billing.max_attempts, of_billing.labels) == (1, {"team": "shop"})
        assert (of_plain.name, of_plain.dead_letter_topic, of_plain.max_attempts) == ("plain", None, None)

        gone = topic.publish(b"bad", ordering_key="bob", attributes={"kind": "created"}).result(30)
        with billing.pull(lambda message: message.nack()):
            until(lambda: next(iter(billing.dead_letters()), None) is not None)
        for options in ({}, {"subscription": "billing"}):
            (letter,) = table(spark, "dead_letters", broker, **options).collect()
            assert (letter.subscription, letter.message_id, letter.topic) == ("billing", gone, "orders")
            assert (letter.ordering_key, bytes(letter.data), letter.attempts) == ("bob", b"bad", 1)
            assert letter.attributes == {"kind": "created"}

        catalog = {(row.kind, row.name): row for row in table(spark, "catalog", broker).collect()}
        assert set(catalog) == {
            ("topic", "orders"),
            ("topic", "orders.dead"),
            ("subscription", "billing"),
            ("subscription", "plain"),
        }
        told = catalog["subscription", "billing"]
        assert (told.topic, told.state) == ("orders", "ready")
        assert json.loads(told.record)["options"]["labels"] == {"team": "shop"}


def test_wrong_options_are_named(spark: SparkSession) -> None:
    from spark import register_tables

    register_tables(spark)
    source = "kafka.bootstrap.servers"
    wrong: list[tuple[dict[str, str], str]] = [
        (
            {source: "a:1"},
            "option table: name one of catalog, dead_letters, subscriptions, waiting; it is missing",
        ),
        ({source: "a:1", "table": "orders"}, "there is no table 'orders'"),
        ({"table": "waiting"}, "option kafka.bootstrap.servers is missing"),
        ({source: "a:1", "table": "waiting", "topic": "t"}, "option topic is unknown"),
        (
            {source: "a:1", "table": "waiting", "subscription": "s"},
            "is for the table dead_letters, not for waiting",
        ),
        (
            {source: "a:1", "table": "waiting", "kafka.sasl.jaas.config": "Krb5LoginModule required"},
            "option kafka.sasl.jaas.config: a user and a password",
        ),
    ]
    for options, said in wrong:
        with pytest.raises(Exception, match="InvalidArgument") as raised:
            spark.read.format("kafka_pubsub").options(**options).load()
        assert said in str(raised.value)


def test_settings_of_a_connection_go_to_librdkafka_and_no_others() -> None:
    pytest.importorskip("pyspark")
    from spark.reading.source import client_settings

    told = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": rf'{JAAS} username="ann" password="a \"b\" \\ c";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.max.poll.records": "100",
        "kafka.bootstrap.servers": "kafka:9092",
        "table": "waiting",
    }
    assert client_settings(told) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "b" \\ c',
        "ssl.ca.location": "/ca.pem",
    }
    with pytest.raises(InvalidArgument, match=r"sasl\.jaas\.config"):
        client_settings({"kafka.sasl.jaas.config": "Krb5LoginModule required"})


def test_spark_finds_the_format_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """In a program that imports nothing of ours; the module lies where the wheel puts it."""
    del spark
    shutil.copy(ROOT / "spark" / "pyspark_kafka_pubsub.py", tmp_path)
    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.bindAddress', '127.0.0.1').config('spark.driver.host', '127.0.0.1').getOrCreate()\n"
        "source = spark.read.format('kafka_pubsub').option('kafka.bootstrap.servers', 'localhost:1')\n"
        "print(source.option('table', 'catalog').load().columns)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "['kind', 'name', 'topic', 'state', 'created', 'record']" in ran.stdout
