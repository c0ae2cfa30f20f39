"""A new idempotent producer is introduced to a broker, so that its first record doesn't wait for its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_pubsub.config import Batching
from kafka_pubsub.log.kafka import client_factory
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration
from kafka_pubsub.log.kafka.writer import KafkaLogWriter


class Scripted:
    """A producer whose brokers answer so many requests for metadata, once they are back."""

    def __init__(self, settings: dict[str, object], logger: object = None) -> None:
        self.settings = settings
        self.away = False
        self.asked: list[str] = []

    def __len__(self) -> int:
        return 0

    def produce(self, *arguments: object) -> None: ...

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(topic)
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def init_transactions(self, seconds: float) -> None:
        self.asked.append(f"within {seconds:.0f} s")

    def poll(self, timeout: float) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> ClientFactory:
    monkeypatch.setattr(client_factory, "Producer", Scripted)
    handles = ClientFactory(Configuration("nowhere:1", {}))
    handles.known_topic = "known"
    return handles


def scripted(handles: ClientFactory) -> tuple[Scripted, Producer]:
    producer = handles.producer({}, {})
    return cast("Scripted", producer), producer


def test_two_answers_are_needed_because_the_first_comes_from_a_bootstrap_address(
    handles: ClientFactory,
) -> None:
    script, producer = scripted(handles)
    assert handles.introduce(producer, 0.1)
    assert script.asked == ["known", "known"]


def test_no_topic_is_asked_for_that_no_broker_has_told_of(handles: ClientFactory) -> None:
    script, producer = scripted(handles)
    handles.known_topic = ""
    assert handles.introduce(producer, 0.1)
    assert script.asked == []


def test_brokers_that_are_away_are_no_error(handles: ClientFactory) -> None:
    script, producer = scripted(handles)
    script.away = True
    assert not handles.introduce(producer, 0.1)


def test_a_producer_is_introduced_before_it_takes_its_transactional_id(handles: ClientFactory) -> None:
    script, producer = scripted(handles)
    handles.init_transactions(producer, 9.0)
    assert script.asked == ["known", "known", "within 9 s"]


def test_no_request_of_a_producer_makes_a_topic(handles: ClientFactory) -> None:
    """A broker with `auto.create.topics.enable` makes every topic that a producer asks for, unless forbidden."""
    script, _ = scripted(handles)
    assert script.settings["allow.auto.create.topics"] == "false"


def requests(log: KafkaLogWriter, script: Scripted, polls: int) -> Sequence[str]:
    """Returns what the writer asks for in so many polls."""
    script.asked.clear()
    for _ in range(polls):
        log.poll(0)
    return list(script.asked)


def test_a_writer_introduces_its_producer_once(handles: ClientFactory) -> None:
    log = KafkaLogWriter(handles, Batching(), 1_000_000)
    script = cast("Scripted", log._session.producer)
    assert requests(log, script, polls=1) == ["known", "known"]
    assert requests(log, script, polls=3) == []


def test_a_writer_gives_up_where_brokers_stay_away(handles: ClientFactory) -> None:
    log = KafkaLogWriter(handles, Batching(), 1_000_000)
    script = cast("Scripted", log._session.producer)
    script.away = True
    assert len(requests(log, script, polls=50)) == 10
