"""The example of docs/testing.md with testcontainers' own Kafka.

Where its image can't be pulled, an image of ours with the scripts that testcontainers calls stands for it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docker.errors import APIError, ImageNotFound

from tests.containers.engine import LABELS, ROOT, Engine
from tests.page_suite import run_suite_of_page

(IMAGE,) = re.findall(r'KafkaContainer\("(.*?)"\)', (ROOT / "docs" / "testing.md").read_text("utf-8"))
DOCKERFILE = """
FROM {image}
USER root
COPY launch bash-config configure /etc/confluent/docker/
COPY bash-config /usr/local/bin/kafka-storage
# Testcontainers waits for a line of a level that our image leaves out.
RUN sed -i 's/^rootLogger.level.*/rootLogger.level = info/' /kafka/log4j2.properties \\
    && chmod +x /etc/confluent/docker/* /usr/local/bin/kafka-storage
"""
#: With what Kafka takes by default, where our image takes the number of brokers.
LAUNCH = """#!/bin/bash
export KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=${KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR:-3}
export KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=${KAFKA_TRANSACTION_STATE_LOG_MIN_ISR:-2}
exec /kafka/start.sh
"""


@pytest.fixture
def their_image(engine: Engine, kafka_image: str, tmp_path: Path) -> str:
    """The name of theirs, or of ours that stands for it."""
    try:
        engine.client.images.get(IMAGE)
    except ImageNotFound:
        try:
            engine.client.images.pull(IMAGE)
        except APIError:
            (tmp_path / "Dockerfile").write_text(DOCKERFILE.format(image=kafka_image))
            (tmp_path / "launch").write_text(LAUNCH)
            for name in ("bash-config", "configure"):
                (tmp_path / name).write_text("#!/bin/bash\n")
            # Testcontainers reads a version of Kafka from the tag.
            name, version = "kafka-pubsub-as-theirs", IMAGE.rpartition(":")[2]
            engine.client.images.get(engine.build(name, tmp_path)).tag(name, version)
            return f"{name}:{version}"
    return str(IMAGE)


def test_the_page_of_testing_runs(their_image: str, tmp_path: Path) -> None:
    (tmp_path / "suite").mkdir()
    shown, ours = f'KafkaContainer("{IMAGE}")', f'KafkaContainer("{their_image}", labels={LABELS})'
    done = run_suite_of_page(tmp_path / "suite", "-p", "no:xdist", "-k", "container", replaced=(shown, ours))
    assert "1 passed, 5 deselected" in done.stdout, done.stdout
