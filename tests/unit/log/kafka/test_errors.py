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
from kafka_pubsub.log.kafka.librdkafka_log import LibrdkafkaLog
from kafka_pubsub.log.kafka.outages import Outage
from kafka_pubsub.log.kafka.rights import Doing, Right, id_of, of_group, publishing_to
from kafka_pubsub.model import Committed, TopicPartition

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
        (KafkaError.INVALID_REPLICATION_FACTOR, errors.TooFewBrokers),
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
        (
            KafkaError._ALL_BROKERS_DOWN,
            "1/1 brokers are down",
            "no answer; if it expects TLS or a login, set security.protocol",
        ),
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


@pytest.mark.parametrize(("facility", "suspects"), [("SESSTMOUT", 1), ("REQTMOUT", 1), ("FAIL", 0)])
def test_a_missing_answer_is_a_reason_to_look_whether_brokers_are_there(facility: str, suspects: int) -> None:
    suspected: list[None] = []
    outage = SimpleNamespace(explains=False, suspect=lambda: suspected.append(None))
    LibrdkafkaLog(cast("Outage", outage)).log(logging.WARNING, "%s [%s] %s", facility, "client", "no answer")
    assert len(suspected) == suspects


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
