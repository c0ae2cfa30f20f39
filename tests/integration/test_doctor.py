"""`kafka-pubsub doctor` at a broker with access rules: each line is ok, or has the command that mends it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_pubsub import DeadLetterPolicy, DelayRouter, PubSub
from kafka_pubsub.access.rights import Access, rules_of
from kafka_pubsub.cli.main import cli
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.local.tcp_ports import free_ports
from tests.integration.test_access_rules import LOGIN, GuardedKafka, guarded_kafka, rights_of

RETRY = "orders.sub.billing.retry"
SUBSCRIBER = ("--role", "subscriber", "--topic", "orders", "--subscription", "billing")
DEAD = ("--dead-letter", "orders-dead", "--with", "dead-letters")
#: Seconds for the whole of it.
BOUND = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedKafka]:
    with guarded_kafka(["shop", "stranger"]) as kafka:
        with PubSub(kafka.bootstrap) as owner:
            owner.create_topic("orders", partitions=1)
            owner.create_topic("orders-dead", partitions=1)
            owner.create_subscription("billing", "orders", dead_letter=DeadLetterPolicy(topic="orders-dead"))
            owner._cluster.topology.apply(DelayDeclaration(tiers=2, partitions=1), lambda _: None)
        yield kafka


def doctor(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code and the findings."""
    began = time.monotonic()
    done = CliRunner().invoke(cli, ["doctor", *arguments, "--json"])
    assert time.monotonic() - began < BOUND
    return done.exit_code, json.loads(done.stdout)


def failed(findings: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return [each for each in findings if not each["ok"]]


def as_user(broker: GuardedKafka, user: str) -> list[str]:
    settings = {**LOGIN, "sasl.username": user}
    return [
        "-b",
        broker.guarded,
        *(word for each in settings.items() for word in ("--config", "=".join(each))),
    ]


def keep(broker: GuardedKafka, retention: str) -> None:
    """Sets how long the retry topic keeps its messages."""
    entry = ConfigEntry("retention.ms", retention, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, RETRY, incremental_configs=[entry])
    broker.admin.incremental_alter_configs([resource])[resource].result(10)


def test_what_is_wrong_has_the_command_that_mends_it(broker: GuardedKafka) -> None:
    code, findings = doctor("-b", broker.bootstrap)
    assert code == 1
    (service,) = failed(findings)
    assert (service["check"], service["mend"]) == ("services", "kafka-pubsub service router")
    keep(broker, "1000000")
    wrong = next(each for each in failed(doctor("-b", broker.bootstrap)[1]) if each["check"] == "retention")
    assert f"topic {RETRY} has retention.ms=1000000" in wrong["says"]
    assert f"--entity-name {RETRY} --add-config retention.ms=-1" in wrong["mend"]
    keep(broker, "-1")
    with PubSub(broker.bootstrap) as owner, DelayRouter(owner) as router:
        router.wait_until_running()
        code, findings = doctor("-b", broker.bootstrap)
    assert (code, failed(findings)) == (0, [])
    said = {each["check"]: each["says"] for each in findings}
    assert said["version"] == "Kafka 4.0 or newer"
    assert said["offset.metadata.max.bytes"] == "4096"
    assert "s between here and the broker" in said["clock"]


def test_missing_rights_have_the_commands_that_grant_them(broker: GuardedKafka) -> None:
    code, findings = doctor(*as_user(broker, "stranger"), *SUBSCRIBER, *DEAD)
    assert code == 1
    commands = [each["mend"] for each in failed(findings)]
    assert {each["check"] for each in failed(findings)} == {"rights", "transactions"}
    assert len(commands) == len(rights_of("subscriber"))
    grant = f"kafka-acls.sh --bootstrap-server {broker.guarded} --add --allow-principal User:NAME"
    assert f"{grant} --operation Read --operation DescribeConfigs --topic orders" in commands
    assert (
        f"{grant} --operation Write --transactional-id billing- --resource-pattern-type prefixed" in commands
    )
    broker.grant(rights_of("subscriber"), "shop")
    code, findings = doctor(*as_user(broker, "shop"), *SUBSCRIBER, *DEAD)
    assert (code, failed(findings)) == (0, [])


@pytest.mark.parametrize("role", ["router", "sequencer", "publisher"])
def test_a_client_without_rights_lacks_all_of_a_service(broker: GuardedKafka, role: str) -> None:
    more = ("--with", "delays") if role == "publisher" else ()
    words = (*as_user(broker, "stranger"), "--role", role, "--topic", "orders", *more)
    code, findings = doctor(*words)
    assert code == 1
    assert len(failed(findings)) == len(rules_of(role, Access(["orders"], extras=["delays"] if more else [])))


def test_a_cluster_that_cannot_be_used_ends_it_with_the_reason(broker: GuardedKafka) -> None:
    (port,) = free_ports(1)
    assert [each["check"] for each in failed(doctor("-b", f"127.0.0.1:{port}")[1])] == ["address"]
    wrong = [*as_user(broker, "shop"), "--config", "sasl.password=wrong-word"]
    code, findings = doctor(*wrong)
    (login,) = failed(findings)
    assert (code, login["check"]) == (1, "login")
    assert "the broker refused the login" in login["says"]
    assert "wrong-word" not in json.dumps(findings)


def test_it_reads_as_lines_too(broker: GuardedKafka) -> None:
    done = CliRunner().invoke(cli, ["doctor", "-b", broker.bootstrap])
    assert f"ok    address: {broker.bootstrap}\n" in done.stdout
    assert "FAIL  services: 0 routers running\n      kafka-pubsub service router\n" in done.stdout
