"""Handles of librdkafka are made when they are needed, with the settings of the user."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.kafka import client_factory
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration


def test_ours_wins_over_theirs_wins_over_the_default() -> None:
    configuration = Configuration("localhost:1", {"linger.ms": 7, "socket.keepalive.enable": False})
    merged = configuration.merged({"linger.ms": 5, "fetch.wait.max.ms": 9}, {"acks": "all"})
    assert merged["linger.ms"] == 7
    assert merged["fetch.wait.max.ms"] == 9
    assert merged["acks"] == "all"
    # librdkafka doesn't read Python's "False".
    assert merged["socket.keepalive.enable"] == "false"


def test_a_backend_that_was_not_used_has_no_threads() -> None:
    before = threading.active_count()
    backend = KafkaBackend("localhost:1", {"linger.ms": 7})
    backend.close()
    backend.close()
    assert threading.active_count() == before


def test_an_unknown_group_protocol_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="group_protocol"):
        KafkaBackend("localhost:1", group_protocol="share")  # type: ignore[arg-type]


#: What librdkafka logs of Kafka 3.9.1 and 4.3.1.
LINE = "127.0.0.1:9092/bootstrap:   ApiKey Fetch (1) Versions {}..17"


class Deaf(AdminClient):
    """A client that has nothing to say."""

    def __init__(self) -> None:
        pass

    def poll(self, timeout: float = -1) -> int:
        return 0


def factory(least: int | None) -> ClientFactory:
    made = ClientFactory(Configuration("h:1", {}))
    if least is not None:
        made._log.log(10, "%s %s %s", "APIVERSION", "client", LINE.format(least))
    return made


def test_a_broker_older_than_4_0_is_refused() -> None:
    with pytest.raises(
        FailedPrecondition, match=r"broker at h:1 is older than Kafka 4\.0: .*update the cluster"
    ):
        factory(0).check_version(Deaf())


@pytest.mark.parametrize("least", [4, None])
def test_others_and_those_that_have_said_nothing_yet_are_taken(least: int | None) -> None:
    factory(least).check_version(Deaf())


def consumer_of(made: ClientFactory) -> Consumer:
    return made.consumer({}, {"group.id": "g"})


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Something happens on another thread while a consumer is made."""

    class Slow(Consumer):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)
            thread = threading.Thread(target=happens, daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive(), "it waits for the consumer that is made"

    monkeypatch.setattr(client_factory, "Consumer", Slow)


def test_other_clients_close_while_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one reads files and asks for tokens: seconds, now and then."""
    made = factory(None)
    first = consumer_of(made)
    meanwhile(monkeypatch, lambda: made.close_consumer(first))
    consumer_of(made)
    made.close()


def test_a_client_that_is_made_while_its_backend_closes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = factory(None)
    meanwhile(monkeypatch, made.close)
    with pytest.raises(FailedPrecondition, match="closed"):
        consumer_of(made)
    assert made._open == []
