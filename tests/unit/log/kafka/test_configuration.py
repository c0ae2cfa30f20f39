"""Settings are checked where they enter, without a connection."""

from __future__ import annotations

import pytest

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka import compacted_log
from kafka_pubsub.log.kafka.client_settings import reader_settings
from kafka_pubsub.log.kafka.configuration import RULES, Configuration, ConfigValue
from kafka_pubsub.log.kafka.writer import producer_settings


@pytest.mark.parametrize(
    "address",
    ["localhost", "localhost:9092", "a:1,b:2", " a:1 , b:2 ", "[::1]:9092", "SASL_SSL://broker.example:9093"],
)
def test_addresses(address: str) -> None:
    assert Configuration(address, {}).bootstrap == ",".join(part.strip() for part in address.split(","))


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "host:port",
        "host:0",
        "host:65536",
        "host:9092,",
        "http//x:1",
        "http://x:1",
        "a b:1",
        "::1:9092",
    ],
)
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="address"):
        Configuration(address, {})


def test_no_address_says_how_to_give_one() -> None:
    with pytest.raises(InvalidArgument, match="KAFKA_PUBSUB_BOOTSTRAP"):
        Configuration(None, {})


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_the_address_may_come_in_the_config(name: str) -> None:
    assert Configuration(None, {name: "a:1"}).bootstrap == "a:1"
    assert Configuration("a:1", {name: "a:1"}).bootstrap == "a:1"
    with pytest.raises(InvalidArgument, match="two Kafka addresses"):
        Configuration("b:1", {name: "a:1"})


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"no.such.thing": 1}, "no.such.thing"),
        ({"fetch.wait.max.ms": "soon"}, "fetch.wait.max.ms"),
        ({"fetch.wait.max.ms": -1}, "fetch.wait.max.ms"),
        ({"security.protocol": "plain"}, "security.protocol"),
        ({"socket.keepalive.enable": True, "linger.mss": 5}, "linger.mss"),
        ({"error_cb": "print"}, "error_cb"),
    ],
)
def test_what_librdkafka_cannot_take_is_named(config: dict[str, ConfigValue], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Configuration("localhost:1", config)


def test_a_value_of_another_type_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"sasl\.username.*NoneType"):
        Configuration("localhost:1", {"sasl.username": None})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", sorted(RULES))
def test_what_our_promises_stand_on_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        Configuration("localhost:1", {name: "1"})


def test_every_rule_that_an_adapter_sets_is_one_that_a_user_is_told_of() -> None:
    """Else a user's value would be dropped without a word."""
    rules = [
        reader_settings("g", "m", "classic")[1],
        reader_settings("g", "m", "consumer")[1],
        producer_settings(Batching(), 1_000_000)[1],
        compacted_log.READER_RULES,
        {name: "" for name in compacted_log.WRITER_RULES if name not in ("linger.ms",)},
    ]
    assert {name for each in rules for name in each} - set(RULES) == set()
