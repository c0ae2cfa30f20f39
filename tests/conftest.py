"""The one real broker that all tests of a session share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kafka_pubsub.local import LocalKafka, PartsMissing


@dataclass(frozen=True)
class RunningKafka:
    """A broker that runs already."""

    bootstrap: str


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka | RunningKafka]:
    """A real Kafka: the one at KAFKA_PUBSUB_TEST_BOOTSTRAP, else an ephemeral one of our own."""
    if address := os.environ.get("KAFKA_PUBSUB_TEST_BOOTSTRAP"):
        yield RunningKafka(address)
        return
    broker = LocalKafka()
    try:
        broker.start()
    except PartsMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield broker
    finally:
        broker.close()
