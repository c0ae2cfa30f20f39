"""The log lines of librdkafka: which are warnings, and which are no news."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError

from kafka_pubsub import errors
from kafka_pubsub.log.kafka.errors import unreachable
from kafka_pubsub.log.kafka.librdkafka_log import LOGGER_NAME, LibrdkafkaLog
from kafka_pubsub.log.kafka.outages import Outage


def fail(*_: object) -> None:
    raise AssertionError("nothing waits here")


def log_of_a_healthy_cluster() -> LibrdkafkaLog:
    return LibrdkafkaLog(Outage("nowhere", sleep=fail))


def test_a_lost_connection_is_told_by_its_reason() -> None:
    said = (
        "10.0.0.1:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused "
        "(after 3ms in state CONNECT)"
    )
    told = unreachable("list topics", "10.0.0.1:9092", KafkaError(KafkaError._TRANSPORT, said))
    assert isinstance(told, errors.BrokerUnavailable)
    assert told.message == (
        "no broker answers at 10.0.0.1:9092 (connection refused): check the address, that the cluster "
        "runs, and the network between"
    )


def test_a_connection_that_stays_broken_is_a_warning_and_then_one_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER_NAME)
    now = 0.0
    log = LibrdkafkaLog(Outage("nowhere", sleep=fail), clock=lambda: now)
    while now < 70:
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", f"connect to host:{round(now)} failed")
        now += 0.5
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "another reason")
    assert [(line.levelname, line.getMessage()) for line in caplog.records] == [
        ("INFO", "FAIL [client] connect to host:0 failed"),
        ("WARNING", "5 lines like the next one were left out"),
        ("WARNING", "FAIL [client] connect to host:3 failed"),
        ("WARNING", "119 lines like the next one were left out"),
        ("WARNING", "FAIL [client] connect to host:63 failed"),
        ("INFO", "FAIL [client] another reason"),
    ]


@pytest.mark.parametrize("facility", ["FAIL", "ERROR", "SESSTMOUT", "REQTMOUT", "METADATAUPDATE"])
def test_while_no_broker_answers_lost_connections_are_no_news(
    caplog: pytest.LogCaptureFixture, facility: str
) -> None:
    caplog.set_level(logging.INFO, LOGGER_NAME)
    log = LibrdkafkaLog(cast("Outage", SimpleNamespace(explains=True, suspect=lambda: None)))
    for _ in range(9):
        log.log(logging.ERROR, "%s [%s] %s", facility, "client", "connect failed")
    assert caplog.records == []


@pytest.mark.parametrize("facility", ["FATAL", "TXNERR", "ADDPARTS", "ADDOFFSETS"])
def test_a_producer_that_was_fenced_is_a_warning(caplog: pytest.LogCaptureFixture, facility: str) -> None:
    log_of_a_healthy_cluster().log(
        logging.CRITICAL, "%s [%s] %s", facility, "client", "Producer epoch is fenced"
    )
    assert [line.levelname for line in caplog.records] == ["WARNING"]


def test_a_coordinator_that_is_asked_again_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER_NAME)
    text = "Failed to acquire transactional PID from broker TxnCoordinator/1: Broker: Not coordinator"
    log_of_a_healthy_cluster().log(logging.WARNING, "%s [%s] %s", "GETPID", "client", f"{text}: retrying")
    log_of_a_healthy_cluster().log(logging.WARNING, "%s [%s] %s", "GETPID", "client", text)
    assert [line.levelname for line in caplog.records] == ["INFO", "WARNING"]


def test_a_setting_of_another_client_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER_NAME)
    text = "Configuration property linger.ms is a producer property and will be ignored by this consumer instance"
    log_of_a_healthy_cluster().log(logging.WARNING, "%s [%s] %s", "CONFWARN", "client", text)
    log_of_a_healthy_cluster().log(logging.WARNING, "%s [%s] %s", "CONFWARN", "client", "no CA certificates")
    assert [line.getMessage() for line in caplog.records] == ["CONFWARN [client] no CA certificates"]
