"""A cluster with access rules: the rights of each role are enough together, and a missing right is named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_pubsub import DeadLetterPolicy, DelayRouter, Message, PubSub
from kafka_pubsub.access.rights import Access, rules_of
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.local import LocalKafka, broker_process
from kafka_pubsub.local.node_config import LOOPBACK, NodeSettings, server_properties
from kafka_pubsub.local.tcp_ports import free_ports
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration
from kafka_pubsub.log.kafka.tails import find_lost_tails
from kafka_pubsub.model import LogEnd, TopicPartition
from tests.support import until

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": "secret",
}
USERS = ("shop", "publisher", "sequencer", "subscriber", "admin", "router")
TOPIC = ResourceType.TOPIC
RETRY, MARKS = "orders.sub.billing.retry", "_kafka_pubsub.deadletters"

KINDS = {
    "topic": TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
#: The names with which the programs of these tests work.
ACCESS = Access(["orders"], "billing", "orders-dead", ["dead-letters"])

Rights = dict[tuple[ResourceType, str], list[AclOperation]]


def rights_of(role: str, *extras: str) -> Rights:
    """Returns the rights of a role as a broker takes them."""
    rights: Rights = {}
    for rule in rules_of(role, ACCESS._replace(extras=[*ACCESS.extras, *extras])):
        operations = [operation_of(each) for each in rule.operations]
        rights.setdefault((KINDS[rule.type], rule.name), []).extend(operations)
    return rights


def operation_of(name: str) -> AclOperation:
    """Returns an operation by its name in the data, such as DescribeConfigs."""
    return AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]


class GuardedKafka:
    """A broker whose owner may do everything; `shop`, by a login, only as much as granted."""

    def __init__(self, bootstrap: str, guarded: str) -> None:
        self.bootstrap = bootstrap
        self.guarded = guarded
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def grant(self, rights: Rights, user: str = "shop") -> None:
        acls = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED if name.endswith(("-", ".")) else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for (kind, name), operations in rights.items()
            for operation in operations
        ]
        self.add(acls)

    def add(self, acls: Sequence[AclBinding]) -> None:
        """Makes rules, and waits until the broker goes by them."""
        for done in self.admin.create_acls(list(acls)).values():
            done.result(10)
        until(lambda: self._rules().issuperset(acls), "the new access rules")

    def _rules(self) -> set[AclBinding]:
        every = cast("str", None)  # the stub doesn't know that None stands for all
        all_of_them = AclBindingFilter(
            ResourceType.ANY,
            every,
            ResourcePatternType.ANY,
            every,
            every,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return set(self.admin.describe_acls(all_of_them).result(10))

    def login(self, user: str) -> PubSub:
        return PubSub(self.guarded, config={**LOGIN, "sasl.username": user})

    def shop(self) -> PubSub:
        return self.login("shop")


@contextmanager
def guarded_kafka(users: Iterable[str]) -> Iterator[GuardedKafka]:
    """Runs a broker with a listener at which these users log in."""
    (port,) = free_ports(1)
    added = {
        "listeners": f",LOGIN://{LOOPBACK}:{port}",
        "advertised.listeners": f",LOGIN://{LOOPBACK}:{port}",
        "listener.security.protocol.map": ",LOGIN:SASL_PLAINTEXT",
    }

    logins = " ".join(f'user_{name}="secret"' for name in users)

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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_process, "server_properties", guarded)
        with LocalKafka() as kafka:
            yield GuardedKafka(kafka.bootstrap, f"{LOOPBACK}:{port}")


@pytest.fixture
def broker() -> Iterator[GuardedKafka]:
    with guarded_kafka(USERS) as kafka:
        yield kafka


def publish_later_and_be_warned(broker: GuardedKafka, caplog: pytest.LogCaptureFixture) -> None:
    """Publishes while no router runs."""
    with broker.login("publisher") as publisher:
        publisher.topic("orders").publish(b"later", delay=0.5).result(20)
        until(lambda: "no delay router runs" in caplog.text)


def test_the_documented_rights_are_enough(broker: GuardedKafka, caplog: pytest.LogCaptureFixture) -> None:
    broker.grant(rights_of("admin"), "admin")
    policy = DeadLetterPolicy(topic="orders-dead", max_attempts=5)
    with broker.login("admin") as admin:
        admin.create_topic("orders", partitions=1)
        admin.create_topic("orders-dead", partitions=1)
        admin.create_subscription("billing", topic="orders", dead_letter=policy)
        admin.update_topic("orders", retention=3600)
        admin._cluster.topology.apply(DelayDeclaration(tiers=2, partitions=1), print)
    broker.grant(rights_of("publisher"), "publisher")
    with broker.login("publisher") as ps:
        ps.topic("orders").publish(b"poison").result(20)
    with broker.shop() as ps, pytest.raises(PermissionDenied, match="needs DESCRIBE on topic"):
        ps.subscription("billing").pull(Message.ack)
    broker.grant(rights_of("subscriber"))
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
    broker.grant(rights_of("subscriber", "replay"))
    with broker.shop() as ps:
        assert ps.subscription("billing").replay_dead_letters().count == 1
        with ps.subscription("billing").pull(Message.ack) as stream:
            until(lambda: stream.stats.acked == 1)
    broker.grant(rights_of("publisher", "delays"), "publisher")
    publish_later_and_be_warned(broker, caplog)
    broker.grant(rights_of("router"), "router")
    with (
        broker.login("router") as router,
        DelayRouter(router),
        broker.login("publisher") as publisher,
        broker.shop() as ps,
        ps.subscription("billing").pull(Message.ack) as stream,
    ):
        publisher.topic("orders").publish(b"later", delay=0.5).result(20)
        until(lambda: stream.stats.acked == 2)
    with broker.login("admin") as admin:
        admin.delete_subscription("billing")
        admin.delete_topic("orders-dead")


def test_a_topic_that_may_not_be_made_is_reported_with_its_settings(broker: GuardedKafka) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.create_topic("orders", partitions=3)
    broker.grant(rights_of("publisher"))
    broker.grant({(TOPIC, RETRY): [AclOperation.DESCRIBE], (KINDS["group"], "billing"): [AclOperation.READ]})
    with (
        broker.shop() as ps,
        pytest.raises(PermissionDenied, match=r"for writing \(transactional id '_kafka_pubsub.catalog'\)"),
    ):
        ps.create_subscription("billing", topic="orders")
    catalog = "_kafka_pubsub.catalog"
    broker.grant(
        {(TOPIC, catalog): [AclOperation.WRITE], (KINDS["transactional id"], catalog): [AclOperation.WRITE]}
    )
    with (
        broker.shop() as ps,
        pytest.raises(
            PermissionDenied,
            match=f"create topic '{RETRY}': .*or have the topic made with 3 partitions, .*retention.ms=-1",
        ),
    ):
        ps.create_subscription("billing", topic="orders")
