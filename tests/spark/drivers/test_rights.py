"""A job works with the rights of its role, and logs in with a file of Kafka's own tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kafka_pubsub import PubSub
from kafka_pubsub.access.rights import Access, rules_of
from tests.integration.test_access_rules import KINDS, guarded_kafka, operation_of
from tests.spark.needs import need_spark

LOGIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
    '  username="spark" password="secret";\n'
)
#: Seconds for a job: Spark starts, and fetches its jars the first time.
PATIENCE = 240


def test_an_archive_needs_the_rights_of_its_role_only(tmp_path: Path) -> None:
    need_spark()
    file = tmp_path / "spark.properties"
    file.write_text(LOGIN)
    with guarded_kafka(["spark"]) as kafka:
        with PubSub(kafka.bootstrap) as owner:
            topic = owner.create_topic("orders", partitions=1)
            topic.publish_many([b"1", b"2", b"3"]).result(30)
        rules = rules_of("spark", Access(["orders"]))
        kafka.grant(
            {(KINDS[each.type], each.name): [*map(operation_of, each.operations)] for each in rules}, "spark"
        )
        command = ["spark", "run", "archive", "--topic", "orders", "--to", str(tmp_path / "archive")]
        login = ["-b", kafka.guarded, "--config-file", str(file)]
        done = subprocess.run(
            [sys.executable, "-m", "kafka_pubsub", *command, *login],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "3 messages read" in done.stdout
    assert '"secret"' not in done.stdout + done.stderr
