"""From the constructor to the end: where the address comes from, when something connects, closing, forking."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import kafka_pubsub.local
from kafka_pubsub import FailedPrecondition, InvalidArgument, PubSub
from kafka_pubsub.log.memory.backend import MemoryBackend

#: Nothing listens there, and nobody is asked before the first call.
NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KAFKA_PUBSUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(kafka_pubsub.local, "find_running", lambda: None)


# -- the address -----------------------------------------------------------------------------------------------


def test_without_an_address_the_error_says_how_to_get_a_kafka() -> None:
    with pytest.raises(FailedPrecondition, match="kafka-pubsub up") as caught:
        PubSub()
    assert "KAFKA_PUBSUB_BOOTSTRAP" in caught.value.message


def test_the_address_is_looked_for_in_the_order_of_how_explicit_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_pubsub.local, "find_running", lambda: "embedded:1")
    assert "embedded:1" in repr(PubSub())
    monkeypatch.setenv("KAFKA_PUBSUB_BOOTSTRAP", "environment:2")
    assert "environment:2" in repr(PubSub())
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", '{"bootstrap.servers": "json:3"}')
    assert "json:3" in repr(PubSub())
    assert "config:4" in repr(PubSub(config={"bootstrap.servers": "config:4"}))
    assert "argument:5" in repr(PubSub("argument:5", config={"bootstrap.servers": "config:4"}))


@pytest.mark.parametrize("address", ["", "  ", 9092, b"localhost:9092", ["a:1"]])
def test_an_address_that_is_none_is_refused(address: Any) -> None:
    with pytest.raises(InvalidArgument, match="bootstrap must be an address like 'localhost:9092'"):
        PubSub(address)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KAFKA_PUBSUB_CREATE", "perhaps", "must be true or false (got 'perhaps')"),
        ("KAFKA_PUBSUB_GROUP_PROTOCOL", "newest", "must be 'classic' or 'consumer' (got 'newest')"),
        ("KAFKA_PUBSUB_CONFIG", "{", "isn't JSON: write an object"),
        ("KAFKA_PUBSUB_CONFIG", "[1]", "must be an object of names and values"),
        ("KAFKA_PUBSUB_CONFIG", '{"a": [1]}', ".a."),
    ],
)
def test_a_wrong_setting_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=f"environment: {name}") as caught:
        PubSub(NOWHERE)
    assert said in caught.value.message


def test_a_password_in_a_broken_config_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", '{"sasl.password": "secret"')
    with pytest.raises(InvalidArgument) as caught:
        PubSub(NOWHERE)
    assert "secret" not in caught.value.message


def test_a_variable_in_small_letters_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("kafka_pubsub_bootstrap", "environment:2")
    assert "environment:2" in repr(PubSub())


def test_an_unknown_group_protocol_is_refused() -> None:
    protocol: Any = "newest"
    with pytest.raises(InvalidArgument, match="'classic' or 'consumer', not 'newest'"):
        PubSub(NOWHERE, group_protocol=protocol)


def test_create_comes_from_the_argument_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    class Recorded(MemoryBackend):
        def __init__(self, *args: object, create: bool, **rest: object) -> None:
            made.append(create)
            super().__init__()

    monkeypatch.setattr("kafka_pubsub.log.kafka.backend.KafkaBackend", Recorded)
    PubSub(NOWHERE).list_topics()
    monkeypatch.setenv("KAFKA_PUBSUB_CREATE", "false")
    PubSub(NOWHERE).list_topics()
    PubSub(NOWHERE, create=True).list_topics()
    assert made == [True, False, True]


# -- the first use and the end ---------------------------------------------------------------------------------


def test_making_a_pubsub_and_handles_connects_to_nothing() -> None:
    before = threading.active_count()
    with PubSub(NOWHERE) as ps:
        ps.topic("orders")
        ps.subscription("billing")
        assert threading.active_count() == before
    assert threading.active_count() == before


# -- forking ---------------------------------------------------------------------------------------------------


# -- importing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import kafka_pubsub", {"confluent_kafka", "pydantic", "asyncio"}),
        ("import kafka_pubsub.model", {"confluent_kafka", "pydantic"}),
        ("import kafka_pubsub.aio", {"confluent_kafka", "pydantic"}),
        ("from kafka_pubsub import PubSub; PubSub.in_memory().list_topics()", {"confluent_kafka"}),
    ],
)
def test_importing_loads_only_what_is_used(statement: str, heavy: set[str]) -> None:
    program = f"{statement}\nimport sys\nprint(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
