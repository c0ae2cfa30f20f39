"""A foreign transaction that stays open in a retry partition: named in the log, and over by the command named there."""

from __future__ import annotations

import logging
import re
import shlex
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.local.java import find_java
from kafka_pubsub.subscribe.retry_topic import open_transactions
from tests.support import until

#: Seconds after which a test gives up; far above the time that anything here takes.
PATIENCE = 60.0
#: Seconds within which the transaction is named.
PROMISED = 30.0
COMMAND = re.compile(r"`kafka-transactions\.sh ([^`]*)`")


@pytest.fixture
def name() -> str:
    return f"open-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def ps(kafka: Any) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as ps:
        yield ps


class Scene:
    """A subscription, and a transaction of somebody else's in partition 0 of its retry topic."""

    def __init__(self, ps: PubSub, bootstrap: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
        self._bootstrap, self._name, self._caplog = bootstrap, name, caplog
        caplog.set_level(logging.ERROR, "kafka_pubsub.subscriber")
        self.topic = ps.topic(ps.create_topic(name, partitions=1).name)
        retry = RetryPolicy(min_backoff=0.05, max_backoff=0.2)
        self.sub = ps.create_subscription(name, name, message_ordering=True, retry=retry)
        self.nacked, self.acked = threading.Event(), threading.Event()

    def open_transaction(self) -> None:
        # Milliseconds; the broker doesn't end the transaction while the test runs.
        producer = self._producer({"transaction.timeout.ms": 600_000})
        producer.begin_transaction()
        producer.produce(f"{self._name}.sub.{self._name}.retry", b"open", partition=0)
        assert producer.flush(PATIENCE) == 0

    def end_transaction(self) -> None:
        """Its producer comes back."""
        self._producer({})

    def _producer(self, config: dict[str, Any]) -> Producer:
        ids = {"bootstrap.servers": self._bootstrap, "transactional.id": f"foreign-{self._name}"}
        producer = Producer({**ids, **config})
        producer.init_transactions(PATIENCE)
        return producer

    def handle(self, message: Message) -> None:
        if message.delivery_attempt == 1:
            message.nack()
            self.nacked.set()
        else:
            message.ack()
            self.acked.set()

    def named(self) -> list[str]:
        """The commands that are told: whose it is, whether it hangs, and what ends it."""
        return COMMAND.findall(self._caplog.text)


@pytest.fixture
def scene(ps: PubSub, kafka: Any, name: str, caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(ps, kafka.bootstrap, name, caplog)


def test_a_stream_that_is_held_up_names_the_transaction_and_goes_on_afterwards(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "PATIENCE", 0.5)
    monkeypatch.setattr(open_transactions, "LOOK", 0.2)
    scene.open_transaction()
    scene.topic.publish(b"1", ordering_key="k").result(PATIENCE)
    with scene.sub.pull(scene.handle) as stream:
        until(scene.named, "the transaction's name")
        assert not scene.nacked.is_set(), "nothing begins before the retry partition was read"
        scene.end_transaction()
        assert scene.acked.wait(PATIENCE)
        assert not stream.done()


@pytest.mark.slow
def test_the_command_that_is_named_within_half_a_minute_ends_the_transaction(
    scene: Scene, tmp_path: Path
) -> None:
    import jgo

    tools = jgo.build("org.apache.kafka:kafka-tools:4.4.0", cache_dir=tmp_path).all_jars
    with scene.sub.pull(scene.handle) as stream:
        until(lambda: stream.stats.partitions, "the assignment")
        scene.open_transaction()
        began = time.monotonic()
        scene.topic.publish(b"1", ordering_key="k").result(PATIENCE)
        assert scene.nacked.wait(PATIENCE)
        until(scene.named, "the transaction's name")
        assert time.monotonic() - began < PROMISED
        assert not scene.acked.is_set()
        whose, hangs, end = scene.named()
        tool = [
            str(find_java(None)),
            "-cp",
            ":".join(map(str, tools)),
            "org.apache.kafka.tools.TransactionsCommand",
        ]

        def run(command: str) -> str:
            told = subprocess.run(
                [*tool, *shlex.split(command)], check=True, timeout=PATIENCE, capture_output=True
            )
            return told.stdout.decode()

        run(hangs)
        assert "ProducerId" in run(whose)
        run(end)
        assert scene.acked.wait(PATIENCE)
