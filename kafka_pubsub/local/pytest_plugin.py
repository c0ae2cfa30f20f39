"""The session fixture `local_kafka`, for your own tests (docs/testing.md).

    def test_orders(local_kafka):
        with PubSub(local_kafka.bootstrap) as pubsub: ...

Rules: one ephemeral broker a session, shared by the workers of pytest-xdist; a delay router and a sequencer run beside
it, unless pytest's setting `kafka_pubsub_services` is false. `KAFKA_PUBSUB_TEST_BOOTSTRAP` names a broker to use
instead, beside which nothing is started. When Kafka or Java is missing the tests are skipped with the command that
gets them; where `CI` is set they fail, because a build that tests nothing must not look green.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

__all__ = ["RunningKafka", "local_kafka", "running_kafka"]

#: Pytest reads this: the fixture `pubsub` is there, because it needs the client, and nothing here may.
pytest_plugins = ["kafka_pubsub.testing.fixtures"]


@dataclass(frozen=True)
class RunningKafka:
    """A broker to test against."""

    bootstrap: str


@contextmanager
def running_kafka(
    tmp_path_factory: pytest.TempPathFactory, *, services: bool = False
) -> Iterator[RunningKafka]:
    """Yields the broker of this test session; `services` (default False): whether services run beside it."""
    if address := os.environ.get("KAFKA_PUBSUB_TEST_BOOTSTRAP"):
        yield RunningKafka(address)
        return
    # Every pytest run loads this module; only those that use the fixture shall pay for the import.
    from kafka_pubsub.local.broker import LocalKafka
    from kafka_pubsub.local.shared_broker import shared_kafka

    if "PYTEST_XDIST_WORKER" in os.environ:
        # A worker's own directory is below the one of the whole run.
        name = "shared-kafka-with-services" if services else "shared-kafka"
        folder = tmp_path_factory.getbasetemp().parent / name
        with _or_skip(), shared_kafka(folder, services=services) as address:
            yield RunningKafka(address)
        return
    with _or_skip(), LocalKafka(services=services) as kafka:
        yield RunningKafka(kafka.bootstrap)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds our setting to pytest's own."""
    parser.addini(
        "kafka_pubsub_services",
        "whether a delay router and a sequencer run beside the broker of the fixture local_kafka (default: true)",
        type="bool",
        default=True,
    )


@pytest.fixture(scope="session")
def local_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningKafka]:
    """Yields a real Kafka for the session, with a delay router and a sequencer: an object with `.bootstrap`.

    With `kafka_pubsub_services = false` in pytest's settings the broker is alone.
    """
    with running_kafka(tmp_path_factory, services=request.config.getini("kafka_pubsub_services")) as kafka:
        yield kafka


@contextmanager
def _or_skip() -> Iterator[None]:
    from kafka_pubsub.local.errors import PartsMissing

    try:
        yield
    except PartsMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no embedded Kafka: {error.message}")
