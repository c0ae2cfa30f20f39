"""A job works with the rights of its role, and logs in with a file of Kafka's own tools."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.access.rights import Access, rules_of
from tests.integration.test_access_rules import KINDS, GuardedKafka, guarded_kafka, operation_of
from tests.spark.needs import need_spark

LOGIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
    '  username="spark" password="secret";\n'
)
#: The one with all rights, and two that lack one each.
USERS = ("spark", "spark-a", "spark-b")
#: Seconds for a job: Spark starts, and fetches its jars the first time.
PATIENCE = 240


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    need_spark()
    with guarded_kafka(USERS) as guarded:
        with PubSub(guarded.bootstrap) as owner:
            owner.create_topic("orders", partitions=1).publish_many([b"1", b"2", b"3"]).result(30)
        yield guarded


@pytest.mark.parametrize(
    ("user", "missing"), list(zip(USERS, (None, "_kafka_pubsub.catalog", "orders"), strict=True))
)
def test_jobs_need_exactly_the_rights_of_their_role(
    kafka: GuardedKafka, tmp_path: Path, user: str, missing: str | None
) -> None:
    file = tmp_path / "spark.properties"
    file.write_text(LOGIN.replace("spark", user))
    rules = [each for each in rules_of("spark", Access(["orders"])) if each.name != missing]
    kafka.grant(
        {(KINDS[each.type], each.name): [*map(operation_of, each.operations)] for each in rules}, user
    )
    # Of the jobs an archive needs no catalog.
    job = ["audit"] if missing else ["archive", "--to", str(tmp_path / "archive")]
    command = ["spark", "run", *job, "--topic", "orders"]
    login = ["-b", kafka.guarded, "--config-file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "kafka_pubsub", *command, *login],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert '"secret"' not in done.stdout + done.stderr
    if missing is None:
        assert done.returncode == 0, done.stderr[-3000:]
        assert "3 messages read" in done.stdout
    else:
        assert done.returncode == 1
        said = rf"error: topic '{missing}' on .*authoriz.*; `kafka-pubsub access spark --topic NAME` prints"
        assert re.search(said, done.stderr), done.stderr[-3000:]
