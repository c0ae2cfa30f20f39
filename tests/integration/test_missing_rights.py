"""A cluster with access rules: errors and warnings name the missing right, so granting the named rights is enough."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, PubSubError, RetryPolicy, Stream
from kafka_pubsub.errors import PermissionDenied
from tests.integration.test_access_rules import GuardedKafka, broker
from tests.support import until

__all__ = ["broker"]

NEEDS = re.compile(r"this client needs (.+?); ask for")
RIGHT = re.compile(r"(\w+) on (topic|group|transactional id)(?:s that begin with)? '([^']+)'")
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
#: Seconds until a broker follows a new rule: 0.3, as a rule.
FOLLOWS = 10.0

CATALOG = "_kafka_pubsub.catalog"
RETRY = "orders.sub.billing.retry"

Right = tuple[str, str, str]


class Grants:
    """Does things as `shop`, which is granted the rights that errors and log lines name."""

    def __init__(self, broker: GuardedKafka, caplog: pytest.LogCaptureFixture) -> None:
        self._broker = broker
        self._log = caplog
        self._granted: set[Right] = set()
        #: The rights that were named since the last call of `work`.
        self.named: set[Right] = set()

    def work(self, use: Callable[[PubSub], object]) -> set[Right]:
        """Calls, again after each error that names a missing right; returns the rights that were missing."""
        self.named = set()
        patience = time.monotonic() + FOLLOWS
        while (denial := self._denial(use)) is not None:
            if self.take(denial.message):
                patience = time.monotonic() + FOLLOWS
            assert time.monotonic() < patience, f"granting what it names doesn't help: {denial}"
        return self.named

    def _denial(self, use: Callable[[PubSub], object]) -> PubSubError | None:
        try:
            with self._broker.shop() as ps:
                use(ps)
        except PubSubError as error:
            if error.code == PermissionDenied.default_code:
                return error
            raise
        return None

    def wait(self, holds: Callable[[], object]) -> None:
        """Waits for a condition, and grants the rights that the log names meanwhile."""

        def look() -> object:
            for message in [each.getMessage() for each in self._log.records]:
                if NEEDS.search(message):
                    self.take(message)
            return holds()

        until(look)

    def take(self, message: str) -> bool:
        """Grants the rights that a text names, none of those behind "or"; returns whether a right is new."""
        needs = NEEDS.search(message)
        assert needs is not None, message
        firsts = [RIGHT.match(each) for each in needs[1].split(" and ")]
        found = {(each[1], each[2], each[3]) for each in firsts if each is not None}
        assert len(found) == len(firsts), message
        for operation, kind, name in found - self._granted:
            self._broker.grant({(KINDS[kind], name): [AclOperation[operation]]})
        new = not found <= self._granted
        self.named |= found - self._granted
        self._granted |= found
        return new


def on_topic(name: str, *operations: str) -> set[Right]:
    return {(operation, "topic", name) for operation in operations}


def test_granting_what_is_named_is_enough(broker: GuardedKafka, caplog: pytest.LogCaptureFixture) -> None:
    with PubSub(broker.bootstrap) as owner:
        owner.create_topic("orders", partitions=1)
        owner.create_topic("dead", partitions=1)
        owner.create_subscription(
            "billing",
            topic="orders",
            retry=RetryPolicy(min_backoff=0, max_backoff=0),
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
        )
    grants = Grants(broker, caplog)

    def publish(ps: PubSub) -> None:
        ps.topic("orders").publish(b"x").result(20)

    assert grants.work(publish) == on_topic(CATALOG, "DESCRIBE", "READ") | on_topic(
        "orders", "DESCRIBE", "WRITE"
    )

    def receive(ps: PubSub, callback: Callable[[Message], None], holds: Callable[[Stream], object]) -> None:
        with ps.subscription("billing").pull(callback) as stream:
            grants.wait(lambda: stream.done() or holds(stream))
            if stream.done():
                stream.result(0)

    receiving = grants.work(lambda ps: receive(ps, Message.ack, lambda stream: stream.stats.acked == 1))
    assert receiving >= {("READ", "group", "billing"), *on_topic("orders", "READ")}
    assert receiving >= on_topic(RETRY, "DESCRIBE", "READ") | on_topic("dead", "DESCRIBE")

    grants.work(publish)
    failing = grants.work(
        lambda ps: receive(ps, Message.nack, lambda stream: stream.stats.dead_lettered == 1)
    )
    assert failing >= {("WRITE", "transactional id", "billing-")}
    assert failing >= on_topic(RETRY, "WRITE") | on_topic("dead", "WRITE")

    replaying = grants.work(lambda ps: ps.subscription("billing").replay_dead_letters())
    assert replaying >= {
        (right, "group", "_kafka_pubsub.deadletter.billing") for right in ("READ", "DESCRIBE")
    }
    assert replaying >= {("WRITE", "transactional id", "_kafka_pubsub.deadletter.billing")}
    assert replaying >= on_topic("dead", "READ") | on_topic(
        "_kafka_pubsub.deadletters", "CREATE", "READ", "WRITE"
    )

    assert grants.work(lambda ps: ps.create_topic("new")) >= on_topic("new", "CREATE", "DESCRIBE")
    making = grants.work(lambda ps: ps.create_subscription("late", topic="new"))
    assert making >= {("READ", "group", "late"), *on_topic("new.sub.late.retry", "CREATE")}
    assert grants.work(lambda ps: ps.update_topic("new", retention=1000)) == on_topic("new", "ALTER_CONFIGS")
    deleting = grants.work(lambda ps: ps.delete_subscription("late"))
    assert deleting == {("DELETE", "group", "late"), *on_topic("new.sub.late.retry", "DELETE")}
    assert grants.work(lambda ps: ps.delete_topic("new")) == on_topic("new", "DELETE")
