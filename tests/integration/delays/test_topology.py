"""The topics of delayed delivery as code, on a real broker: `kafka-pubsub topology plan` and `apply`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import DEAD, INGEST, tier_topic
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend

#: Seconds for one command on a busy machine.
LIMIT = 60
TOPICS = [INGEST, tier_topic(0), tier_topic(1), tier_topic(2), DEAD]


class Cluster:
    """A broker of its own, and a declaration beside it."""

    def __init__(self, bootstrap: str, file: Path) -> None:
        self.bootstrap, self.file = bootstrap, file
        self.declare({"tiers": 3, "partitions": 2, "replication": 1})

    def declare(self, declaration: dict[str, object]) -> None:
        self.file.write_text(json.dumps(declaration))

    def run(self, *arguments: str) -> tuple[int, Any, str]:
        """Returns the exit code, what was printed as JSON, and the notes."""
        command = [
            sys.executable,
            "-m",
            "kafka_pubsub",
            "--bootstrap",
            self.bootstrap,
            "topology",
            *arguments,
        ]
        done = subprocess.run(
            [*command, "--file", str(self.file), "--json"], check=False, capture_output=True, timeout=LIMIT
        )
        return done.returncode, json.loads(done.stdout or b"null"), done.stderr.decode()

    def plan(self) -> list[tuple[str, str]]:
        """Returns what differs; `--check` must say the same with its exit code."""
        code, changes, notes = self.run("plan", "--check")
        assert code == bool(changes), notes
        return [(each["change"], each["topic"]) for each in changes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with LocalKafka() as broker:
        yield Cluster(broker.bootstrap, tmp_path / "delays.json")


@pytest.fixture
def backend(cluster: Cluster) -> Iterator[KafkaBackend]:
    opened = KafkaBackend(cluster.bootstrap)
    yield opened
    opened.close()


def test_a_declaration_is_planned_applied_and_repaired(cluster: Cluster, backend: KafkaBackend) -> None:
    assert cluster.plan() == [("create", topic) for topic in TOPICS]
    assert not backend.admin.topic_names(), "a plan changes nothing"
    code, made, _ = cluster.run("apply")
    assert code == 0
    assert sorted(each["topic"] for each in made) == sorted(TOPICS)
    assert all(each["what"] == "create with 2 partitions, replication 1" for each in made)
    assert cluster.plan() == []
    assert cluster.run("apply")[1] == [], "applied once more nothing happens"

    backend.admin.update_topic(tier_topic(1), {"retention.ms": "1000", "cleanup.policy": "compact"})
    backend.admin.delete_topic(DEAD)
    assert cluster.plan() == [("set", tier_topic(1)), ("set", tier_topic(1)), ("create", DEAD)]
    _, changes, _ = cluster.run("plan")
    assert {each["what"] for each in changes if each["change"] == "set"} == {
        "retention.ms: 1000 -> -1",
        "cleanup.policy: compact -> delete",
    }
    assert cluster.run("apply")[0] == 0
    assert cluster.plan() == []
    assert backend.admin.topic(tier_topic(1)).config["retention.ms"] == "-1"


def test_what_would_lose_messages_is_refused_as_a_whole(cluster: Cluster, backend: KafkaBackend) -> None:
    cluster.run("apply")
    cluster.declare({"tiers": 2, "partitions": 3, "settings": {"flush.messages": "1000"}})
    found = cluster.plan()
    assert ("refused", tier_topic(2)) in found
    assert {topic for change, topic in found if change == "refused"} == set(TOPICS)
    code, _, error = cluster.run("apply")
    assert code == 1
    assert "declare 4 or another multiple" in error
    assert "declare tiers=3" in error
    assert backend.admin.topic(INGEST).config["flush.messages"] != "1000"


def test_more_tiers_are_added_beside_waiting_messages(cluster: Cluster, backend: KafkaBackend) -> None:
    cluster.run("apply")
    with PubSub(cluster.bootstrap) as ps:
        topic = ps.create_topic("home", partitions=1)
        sub = ps.create_subscription("sub", "home")
        topic.publish(b"waits", delay=2.5).result(30)
        cluster.declare({"tiers": 5, "partitions": 2})
        assert cluster.plan() == [("create", tier_topic(3)), ("create", tier_topic(4))]
        assert cluster.run("apply")[0] == 0
        # The router takes the topics as they were applied.
        with DelayRouter(ps) as router:
            topic.publish(b"longer", delay=3).result(30)
            received = [each.data for _ in range(2) for each in sub.receive(1, timeout=LIMIT)]
            assert router.health().ok
    assert received == [b"waits", b"longer"]
