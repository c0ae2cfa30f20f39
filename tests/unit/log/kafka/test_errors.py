"""Error texts, log lines and commit requests: what can be seen without a broker."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub import errors
from kafka_pubsub.log.kafka.commit_requests import requests
from kafka_pubsub.log.kafka.errors import translate, unreachable
from kafka_pubsub.log.kafka.librdkafka_log import LOGGER_NAME, LibrdkafkaLog
from kafka_pubsub.log.kafka.outages import Outage
from kafka_pubsub.log.kafka.rights import Doing, Right, id_of, of_group, publishing_to
from kafka_pubsub.model import Committed, TopicPartition


def fail(*_: object) -> None:
    raise AssertionError("nothing waits here")


def log_of_a_healthy_cluster() -> LibrdkafkaLog:
    return LibrdkafkaLog(Outage("nowhere", sleep=fail))


ALL_CODES = sorted({code for code in vars(KafkaError).values() if isinstance(code, int)})


@pytest.mark.parametrize("code", ALL_CODES)
def test_every_error_is_ours_and_names_what_we_did_and_the_code(code: int) -> None:
    error = KafkaError(code, "said by the broker")
    told = translate(KafkaException(error), "publish to topic 'orders'")
    assert isinstance(told, errors.PubSubError)
    assert told.message.startswith("publish to topic 'orders': ")
    assert told.message.endswith(f"[{error.name()}]")
    # More than the broker's words alone.
    assert len(told.message) > len(f"publish to topic 'orders': said by the broker [{error.name()}]")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, errors.BrokerUnavailable),
        (KafkaError.NOT_COORDINATOR, errors.BrokerUnavailable),
        (KafkaError._TIMED_OUT, errors.DeadlineExceeded),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.PermissionDenied),
        (KafkaError._AUTHENTICATION, errors.PermissionDenied),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.NotFound),
        (KafkaError.TOPIC_ALREADY_EXISTS, errors.AlreadyExists),
        (KafkaError.INVALID_REPLICATION_FACTOR, errors.InvalidArgument),
        (KafkaError.POLICY_VIOLATION, errors.FailedPrecondition),
        (KafkaError.ILLEGAL_GENERATION, errors.FailedPrecondition),
        (KafkaError._QUEUE_FULL, errors.ResourceExhausted),
    ],
)
def test_the_class_says_what_can_help(code: int, kind: type[errors.PubSubError]) -> None:
    assert type(translate(KafkaError(code, ""), "x")) is kind


@pytest.mark.parametrize(
    ("code", "doing", "needs"),
    [
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            publishing_to("orders"),
            "this client needs WRITE on topic 'orders'; ask for that right",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            publishing_to("orders"),
            "this client needs WRITE on topic 'orders' or IDEMPOTENT_WRITE on the cluster; ask for that right",
        ),
        (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            of_group("billing", "commit", "orders"),
            "this client needs READ on group 'billing'; ask for that right",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            of_group("billing", "commit", "b", "a", "b"),
            "this client needs READ on topic 'a' and READ on topic 'b'; ask for these rights",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            Doing("create topic 'a'", Right("CREATE", "topic", "a")),
            "this client needs CREATE on topic 'a' or on the cluster; ask for that right",
        ),
        *(
            (
                KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                Doing("transaction", id_of(used)),
                f"this client needs WRITE on transactional id{named}; ask for that right",
            )
            for used, named in {
                "_kafka_pubsub.catalog": " '_kafka_pubsub.catalog'",
                "billing-67433828339863424": "s that begin with 'billing-'",
                "billing-67433828339863424-dead": "s that begin with 'billing-'",
                "_kafka_pubsub.delays-0123456789abcdef0123456789abcdef": "s that begin with '_kafka_pubsub.delays-'",
            }.items()
        ),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "something",
            "the cluster's access rules forbid it; ask for the right on the transactional id",
        ),
    ],
)
def test_the_missing_right_is_named(code: int, doing: str, needs: str) -> None:
    told = translate(KafkaError(code, "said"), doing)
    assert isinstance(told, errors.PermissionDenied)
    assert told.message.startswith(f"{doing}: the cluster's access rules forbid it")
    assert needs in told.message


def test_what_a_policy_says_is_quoted() -> None:
    told = translate(KafkaError(KafkaError.POLICY_VIOLATION, "at most 3 partitions"), "create topic 'a'")
    assert "at most 3 partitions" in told.message


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


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (
            KafkaError._TRANSPORT,
            "h:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused "
            "(after 0ms in state CONNECT, 1 identical error(s) suppressed)",
            "connection refused",
        ),
        (
            KafkaError._RESOLVE,
            "h:1/bootstrap: Failed to resolve 'h:1': Name or service not known (after 1ms in state CONNECT)",
            "host not found: Name or service not known",
        ),
        (
            KafkaError._TRANSPORT,
            "h:1/bootstrap: Connection setup timed out in state CONNECT (after 10041ms in state CONNECT)",
            "no answer",
        ),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", "no answer"),
        (
            KafkaError._TRANSPORT,
            "h:1/bootstrap: SSL handshake failed: Disconnected (after 2ms in state SSL_HANDSHAKE)",
            "SSL handshake failed: Disconnected",
        ),
        (
            KafkaError._BAD_MSG,  # a web server
            "h:1/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase "
            "receive.message.max.bytes (after 0ms in state APIVERSION_QUERY)",
            "what answers there doesn't speak Kafka's protocol",
        ),
    ],
)
def test_the_reason_why_no_broker_answers_is_said_in_a_few_words(code: int, said: str, reason: str) -> None:
    told = unreachable("list topics", "h:1", KafkaError(code, said))
    assert f"no broker answers at h:1 ({reason}): " in told.message


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


@pytest.mark.parametrize(("facility", "suspects"), [("SESSTMOUT", 1), ("REQTMOUT", 1), ("FAIL", 0)])
def test_a_missing_answer_is_a_reason_to_look_whether_brokers_are_there(facility: str, suspects: int) -> None:
    suspected: list[None] = []
    outage = SimpleNamespace(explains=False, suspect=lambda: suspected.append(None))
    LibrdkafkaLog(cast("Outage", outage)).log(logging.WARNING, "%s [%s] %s", facility, "client", "no answer")
    assert len(suspected) == suspects


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


def test_a_commit_is_cut_where_a_request_is_full() -> None:
    answers: dict[TopicPartition, errors.PubSubError | None] = {}
    positions = {TopicPartition("t", number): Committed(7, "\u4e00" * 4095) for number in range(120)}
    cut = list(requests(positions, answers))
    assert [(each.partition, each.offset) for part in cut for each in part] == [(n, 7) for n in range(120)]
    assert all(sum(len((each.metadata or "").encode()) for each in part) < 600_000 for part in cut)
    assert len(cut) == 3
    assert answers == {}


def test_a_small_commit_is_one_request() -> None:
    positions = {TopicPartition("t", number): Committed(7, "") for number in range(100)}
    assert len(list(requests(positions, {}))) == 1


@pytest.mark.parametrize(
    "position", [Committed(None, ""), Committed(-1, ""), Committed(1, "\0"), Committed(1, "\ud800")]
)
def test_what_cannot_be_stored_is_refused_alone(position: Committed) -> None:
    answers: dict[TopicPartition, errors.PubSubError | None] = {}
    bad, good = TopicPartition("t", 0), TopicPartition("t", 1)
    cut = list(requests({bad: position, good: Committed(1, "")}, answers))
    assert [each.partition for part in cut for each in part] == [1]
    assert isinstance(answers[bad], errors.InvalidArgument)
