"""Backends for the tests of the Kafka adapters, closed after each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import GroupProtocol, KafkaBackend
from kafka_pubsub.log.kafka.configuration import ConfigValue

MakeBackend = Callable[..., KafkaBackend]


@pytest.fixture
def make_backend(kafka: RunningKafka) -> Iterator[MakeBackend]:
    """Makes backends of the session's broker."""
    made: list[KafkaBackend] = []

    def make(
        config: dict[str, ConfigValue] | None = None,
        *,
        create: bool = True,
        group_protocol: GroupProtocol = "classic",
    ) -> KafkaBackend:
        backend = KafkaBackend(kafka.bootstrap, config, create=create, group_protocol=group_protocol)
        made.append(backend)
        return backend

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def backend(make_backend: MakeBackend) -> KafkaBackend:
    """One backend."""
    return make_backend()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda what: f"{what}-{uuid.uuid4().hex[:10]}"
