"""Each role works with exactly its rights; without one of them an error or a line of the log names it."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from kafka_pubsub import DeadLetterPolicy, DelayRouter, Message, PubSub, PubSubError, RetryPolicy
from kafka_pubsub.access.rights import Access, Rule, rules_of
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.errors import NotFound
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.observe.kafka_view import KafkaView
from tests.integration.test_access_rules import (
    KINDS,
    GuardedKafka,
    Rights,
    guarded_kafka,
    operation_of,
)
from tests.support import until

#: Users, each of whom is granted rights once.
USERS = tuple(f"u{number}" for number in range(120))
#: Seconds until what a program does without a right must have named it.
PATIENCE = 30.0


class Role(NamedTuple):
    """A program: its rights, and what it does, until its last argument says that a missing right was told."""

    name: str
    access: Access
    work: Callable[[PubSub, GuardedKafka, Callable[[], bool]], None]
    #: What another test looks at: its rights aren't taken away here.
    beside: Access | None = None
    #: What it works with besides.
    also: Access | None = None

    def rules(self) -> list[Rule]:
        accesses = [self.access] if self.also is None else [self.access, self.also]
        return list(dict.fromkeys(rule for each in accesses for rule in rules_of(self.name, each)))


@pytest.fixture(scope="module")
def broker() -> Iterator[GuardedKafka]:
    with guarded_kafka(USERS) as kafka:
        with PubSub(kafka.bootstrap) as owner:
            owner.create_topic("orders", partitions=1)
            owner.create_topic("orders-dead", partitions=1)
            owner.create_topic("stock", causal=True)
            policy = DeadLetterPolicy(topic="orders-dead", max_attempts=2)
            at_once = RetryPolicy(min_backoff=0, max_backoff=0)
            owner.create_subscription("billing", "orders", retry=at_once, dead_letter=policy)
            owner.create_subscription("counting", "stock", message_ordering=True)
            owner._cluster.topology.apply(DelayDeclaration(tiers=2, partitions=1), lambda _: None)
        marks = NewTopic("_kafka_pubsub.deadletters", 1, config={"cleanup.policy": "compact"})
        for made in kafka.admin.create_topics([marks]).values():
            made.result(10)
        yield kafka


def wait(holds: Callable[[], object], told: Callable[[], bool]) -> None:
    """Waits until something holds or the missing right was told; raises if neither comes."""
    end = time.monotonic() + PATIENCE
    while not holds() and not told() and time.monotonic() < end:
        threading.Event().wait(0.02)
    if not holds() and not told():
        raise PubSubError("it neither works nor says why")


def publish(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    ps.topic("orders").publish(b"x").result(PATIENCE)
    later = ps.topic("orders").publish(b"x", delay=0.1)
    wait(later.done, told)
    if not told():
        later.result(0)


def receive(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner:
        for body in (b"good", b"bad", b"later"):
            owner.topic("orders").publish(body, ordering_key=body.decode()).result(PATIENCE)
    got: set[bytes] = set()

    def take(message: Message) -> None:
        got.add(message.data)
        if message.data == b"bad":
            message.nack()
        else:
            message.ack()

    with ps.subscription("billing").pull(take) as stream:
        wait(lambda: stream.done() or (stream.stats.dead_lettered >= 1 and {b"good", b"later"} <= got), told)
        if stream.done():
            stream.result(0)


def manage(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    try:
        for name in ("new", "new-dead"):
            ps.create_topic(name, partitions=1)
        ps.update_topic("new", retention=3600)
        policy = DeadLetterPolicy(topic="new-dead", max_attempts=2)
        ps.create_subscription("new-sub", "new", dead_letter=policy)
        ps.subscription("new-sub").state()
        ps.update_subscription("new-sub", ack_deadline=20)
        ps._cluster.topology.apply(DelayDeclaration(tiers=2, partitions=1), lambda _: None)
        ps.delete_subscription("new-sub")
        for name in ("new", "new-dead"):
            ps.delete_topic(name)
    finally:
        with PubSub(broker.bootstrap) as owner:
            with contextlib.suppress(NotFound):
                owner.delete_subscription("new-sub")
            for name in ("new", "new-dead"):
                with contextlib.suppress(NotFound):
                    owner.delete_topic(name)


def route(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner:
        before = end_of(broker, "orders")
        owner.topic("orders").publish(b"x", delay=1.2).result(PATIENCE)
        with DelayRouter(ps):
            wait(lambda: end_of(broker, "orders") > before, told)


def sequence(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner, Sequencer(ps):
        sent = owner.publish_multi(["stock"], b"x")
        wait(sent.done, told)


def publish_in_order(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner, Sequencer(owner) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        sent = ps.publish_multi(["stock"], b"x")
        wait(sent.done, told)
        if sent.done():
            sent.result(0)


def watch(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.topic("orders").publish(b"x").result(PATIENCE)
        owner.topic("orders").publish(b"later", delay=2).result(PATIENCE)
    assert ps._cluster.backend is not None
    view = KafkaView(everything=True, clusters=lambda: [ps._cluster])
    wanted = {"dead_letters", "delayed_waiting", "routers", "causal_pending", "sequencers"}

    def know() -> bool:
        view.look()
        found = view.readings()
        watched = {each.labels.get("subscription") for each in found if each.gauges.get("retention")}
        return {"billing", "counting"} <= watched and wanted <= {
            name for each in found for name in each.gauges
        }

    wait(know, told)


def replay(ps: PubSub, broker: GuardedKafka, told: Callable[[], bool]) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.topic("orders").publish(b"bad", ordering_key="bad").result(PATIENCE)
        with owner.subscription("billing").pull(lambda message: message.dead_letter("bad")) as stream:
            until(lambda: stream.stats.dead_lettered)
    ps.subscription("billing").replay_dead_letters()


def end_of(broker: GuardedKafka, topic: str) -> int:
    """The end of a topic of one partition."""
    place = TopicPartition(topic, 0)
    found = broker.admin.list_offsets({place: OffsetSpec.latest()})[place].result(PATIENCE)
    return int(found.offset)


ORDERS = Access(["orders"], "billing", "orders-dead", ["dead-letters"])
COUNTING = Access(["stock"], "counting", extras=["causal"])
ROLES = (
    Role("publisher", Access(["orders"], extras=["delays"]), publish),
    Role("publisher", Access(["stock"], extras=["causal"]), publish_in_order),
    Role("subscriber", ORDERS, receive),
    Role("subscriber", ORDERS._replace(extras=["dead-letters", "replay"]), replay, beside=ORDERS),
    Role("admin", Access(["new"], "new-sub", "new-dead", ["dead-letters"]), manage),
    Role("router", Access(["orders"]), route),
    Role("sequencer", Access(["stock"]), sequence),
    Role("monitor", ORDERS._replace(extras=["delays", "dead-letters"]), watch, also=COUNTING),
)

#: Rights without which programs work most of the time, and say nothing; when they need them.
QUIET = {
    "DescribeConfigs": "settings of topics that aren't Kafka's defaults are respected",
    "admin: AlterConfigs new.sub.": "a topic's copies that must be in sync are changed",
    "admin: Delete _kafka_pubsub.deadletter.new-sub": "dead letters were listed or replayed",
    "Alter": "a topic gets more partitions, which takes longer than a minute",
    "subscriber: Delete orders.sub.billing.retry": "what is finished is removed, later",
    "subscriber: Delete orders-dead": "dead letters are purged",
    "sequencer: Read stock": "a sequencer that takes over reads what is stored",
    "publisher: Read stock.inbox": "a publisher looks whether a message is there, after a failure",
    "sequencer: Write stock.inbox": "a sequencer writes there when a topic is deleted",
    "Write _kafka_pubsub.multicast.dead": "a message to causal topics can't be delivered",
    "publisher: Describe _kafka_pubsub.multicast": "no sequencer runs, and the publisher is to be warned",
    "monitor: Read orders-dead": "dead letters are counted: without it that figure is left out",
    "monitor: Read _kafka_pubsub.deadletters": "dead letters are counted: without it that figure is left out",
}

_users = iter(USERS)


def attempt(role: Role, rules: Sequence[Rule], broker: GuardedKafka, told: Callable[[], bool]) -> str:
    """Runs a role with some rights, as a user of its own; returns the error, or nothing."""
    user = next(_users)
    rights: Rights = {}
    for rule in rules:
        rights.setdefault((KINDS[rule.type], rule.name), []).extend(map(operation_of, rule.operations))
    broker.grant(rights, user)
    try:
        with broker.login(user) as ps:
            role.work(ps, broker, told)
    except PubSubError as error:
        return error.message
    return ""


def without(rules: Sequence[Rule]) -> Iterator[tuple[Rule, str, list[Rule]]]:
    """Each right, its operation, and the rules without it."""
    for place, rule in enumerate(rules):
        for operation in rule.operations:
            left = tuple(each for each in rule.operations if each != operation)
            changed = [rule._replace(operations=left)] if left else []
            yield rule, operation, [*rules[:place], *changed, *rules[place + 1 :]]


def rights(rules: Sequence[Rule]) -> set[tuple[str, str]]:
    """Each right as a resource's name and an operation."""
    return {(rule.name, operation) for rule in rules for operation in rule.operations}


def naming(rule: Rule, operation: str) -> re.Pattern[str]:
    """What a line looks like that names a missing right; without it, the right to see the resource may be the first."""
    operations = f"({operation_of(operation).name}|DESCRIBE)"
    if rule.type == "cluster":
        return re.compile(rf"needs.* {operations}\b.* on the cluster")
    kind = rule.type.replace("transactionalId", "transactional id")
    name = re.escape(rule.name) + ("" if rule.prefix else "'")
    return re.compile(rf"needs.* {operations} on {kind}(s that begin with)? '{name}")


class Told(NamedTuple):
    """Whether a missing right was named."""

    log: pytest.LogCaptureFixture
    pattern: re.Pattern[str]

    def in_log(self) -> bool:
        return self.in_text(self.log.text)

    def in_text(self, text: str) -> bool:
        return self.pattern.search(text) is not None


@pytest.mark.parametrize("role", ROLES, ids=lambda role: f"{role.name}-{role.work.__name__}")
def test_a_role_needs_exactly_its_rights(
    broker: GuardedKafka, role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    rules = role.rules()
    caplog.set_level(logging.INFO)
    assert attempt(role, rules, broker, lambda: False) == ""
    # The copy of positions in the catalog is a matter of admins: without it nothing is missing.
    needs = [
        each
        for each in caplog.messages
        if "this client needs" in each and "_kafka_pubsub.catalog" not in each
    ]
    assert needs == []
    unnamed = []
    others = rights(rules_of(role.name, role.beside)) if role.beside else set()
    for rule, operation, left in without(rules):
        if (rule.name, operation) in others or {
            operation,
            f"{operation} {rule.name}",
            f"{role.name}: {operation} {rule.name}",
        } & set(QUIET):
            continue
        caplog.clear()
        told = Told(caplog, naming(rule, operation))
        error = attempt(role, left, broker, told.in_log)
        if not told.in_text(error) and not told.in_log():
            said = [error, *(each for each in caplog.messages if "needs" in each)]
            unnamed.append(f"{operation} on {rule.type} {rule.name}: {said}")
    assert unnamed == []
