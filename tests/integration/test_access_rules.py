"""A cluster with access rules: the rights that docs/operations.md names are enough, and a missing one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_pubsub import DeadLetterPolicy, Message, PubSub
from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.kafka.client_factory import ClientFactory
from kafka_pubsub.kafka.configuration import Configuration
from kafka_pubsub.kafka.tails import find_lost_tails
from kafka_pubsub.local import LocalKafka, broker_process
from kafka_pubsub.local.node_config import LOOPBACK, NodeSettings, server_properties
from kafka_pubsub.local.tcp_ports import free_ports
from kafka_pubsub.model import LogEnd, TopicPartition
from tests.support import until

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": "secret",
}
USERS = ("shop", "publisher", "sequencer", "subscriber")
TOPIC, GROUP, TRANSACTIONS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
)
RETRY, MARKS, REPLAY = (
    "orders.sub.billing.retry",
    "_kafka_pubsub.deadletters",
    "_kafka_pubsub.deadletter.billing",
)

#: As docs/operations.md has them.
TO_PUBLISH = {
    (TOPIC, "_kafka_pubsub.catalog"): [READ],
    (TOPIC, "orders"): [READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS],
    (GROUP, "billing"): [READ],
}
TO_RECEIVE = {
    (TOPIC, RETRY): [READ, WRITE, DESCRIBE, DELETE],
    (TOPIC, "orders-dead"): [WRITE, DESCRIBE],
    (TRANSACTIONS, "billing-"): [WRITE],
}
TO_REPLAY = {
    (TOPIC, "orders-dead"): [READ],
    (TOPIC, MARKS): [READ, WRITE],
    (GROUP, REPLAY): [READ, DELETE],
    (TRANSACTIONS, REPLAY): [WRITE],
}
TO_MANAGE = {(TOPIC, "_kafka_pubsub.catalog"): [WRITE], (TRANSACTIONS, "_kafka_pubsub.catalog"): [WRITE]}

Rights = dict[tuple[ResourceType, str], list[AclOperation]]


class GuardedKafka:
    """A broker whose owner may do everything; `shop`, by a login, only what it was granted."""

    def __init__(self, bootstrap: str, guarded: str) -> None:
        self.bootstrap = bootstrap
        self.guarded = guarded
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def grant(self, rights: Rights) -> None:
        acls = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED if name.endswith("-") else ResourcePatternType.LITERAL,
                "User:shop",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for (kind, name), operations in rights.items()
            for operation in operations
        ]
        for done in self.admin.create_acls(acls).values():
            done.result(10)

    def shop(self) -> PubSub:
        return PubSub(self.guarded, config=LOGIN)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedKafka]:
    (port,) = free_ports(1)
    added = {
        "listeners": f",LOGIN://{LOOPBACK}:{port}",
        "advertised.listeners": f",LOGIN://{LOOPBACK}:{port}",
        "listener.security.protocol.map": ",LOGIN:SASL_PLAINTEXT",
    }

    logins = " ".join(f'user_{name}="secret"' for name in USERS)

    def guarded(settings: NodeSettings, log_dir: Path) -> str:
        lines = [
            line + added.get(line.partition("=")[0], "")
            for line in server_properties(settings, log_dir).splitlines()
        ]
        lines += [
            "sasl.enabled.mechanisms=PLAIN",
            f"listener.name.login.plain.sasl.jaas.config={JAAS} {logins};",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
        ]
        return "\n".join(lines) + "\n"

    monkeypatch.setattr(broker_process, "server_properties", guarded)
    with LocalKafka() as kafka:
        yield GuardedKafka(kafka.bootstrap, f"{LOOPBACK}:{port}")


def test_the_documented_rights_are_enough(broker: GuardedKafka) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.create_topic("orders", partitions=1)
        owner.create_topic("orders-dead", partitions=1)
        policy = DeadLetterPolicy(topic="orders-dead", max_attempts=5)
        owner.create_subscription("billing", topic="orders", dead_letter=policy)
    broker.grant(TO_PUBLISH)
    with broker.shop() as ps:
        ps.topic("orders").publish(b"poison").result(20)
        with pytest.raises(PermissionDenied, match=f"needs DESCRIBE on topic '{RETRY}'"):
            ps.subscription("billing").pull(Message.ack)
    broker.grant(TO_RECEIVE)
    # Another epoch than the log ends with: the leader is asked, by a reader that joins no group.
    place = TopicPartition("orders", 0)
    handles = ClientFactory(Configuration(broker.guarded, LOGIN))
    assert find_lost_tails(handles, {place: LogEnd(1, 1)}, {place: LogEnd(1, 0)}, 10) == {}
    handles.close()
    with broker.shop() as ps:
        with ps.subscription("billing").pull(Message.nack) as stream:
            until(lambda: stream.stats.dead_lettered == 1)
        with pytest.raises(PermissionDenied, match=f"needs \\w+ on topic '{MARKS}'"):
            ps.subscription("billing").replay_dead_letters()
    made = broker.admin.create_topics([NewTopic(MARKS, 1, config={"cleanup.policy": "compact"})])
    made[MARKS].result(10)
    broker.grant(TO_REPLAY)
    with broker.shop() as ps:
        assert ps.subscription("billing").replay_dead_letters().count == 1
        with ps.subscription("billing").pull(Message.ack) as stream:
            until(lambda: stream.stats.acked == 1)


def test_a_topic_that_may_not_be_made_is_reported_with_its_settings(broker: GuardedKafka) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.create_topic("orders", partitions=3)
    broker.grant({**TO_PUBLISH, (TOPIC, RETRY): [DESCRIBE]})
    with (
        broker.shop() as ps,
        pytest.raises(PermissionDenied, match=r"for writing \(transactional id '_kafka_pubsub.catalog'\)"),
    ):
        ps.create_subscription("billing", topic="orders")
    broker.grant(TO_MANAGE)
    with (
        broker.shop() as ps,
        pytest.raises(
            PermissionDenied,
            match=f"create topic '{RETRY}': .*or have the topic made with 3 partitions, .*retention.ms=-1",
        ),
    ):
        ps.create_subscription("billing", topic="orders")
