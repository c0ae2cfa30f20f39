"""Handles of librdkafka are made when they are needed, with the settings of the user."""

from __future__ import annotations

import threading

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.backend import KafkaBackend
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
