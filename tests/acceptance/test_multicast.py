"""Message ordering of multicast, point by point on a real broker."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import combinations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub import InvalidArgument, Message, NotFound, PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.multicast.future import Sent
from kafka_pubsub.multicast.service import Sequencer
from tests import causal
from tests.causal import PATIENCE
from tests.support import until

#: The topics of a test.
LETTERS = "abcd"

names, other, ps = causal.names, causal.other, causal.ps


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningKafka]:
    """A broker of these tests' own, or the one that is named: sequencers serve all causal topics of a cluster."""
    if address := os.environ.get("KAFKA_PUBSUB_TEST_BOOTSTRAP"):
        yield RunningKafka(address)
        return
    with LocalKafka(session_timeout=30) as running:
        yield RunningKafka(running.bootstrap)


@pytest.fixture(autouse=True)
def sequencer(ps: PubSub, names: list[str]) -> Iterator[Sequencer]:
    with Sequencer(ps) as running:
        yield running.wait_until_running(PATIENCE)


def parse_place(text: str) -> tuple[int, str, int]:
    """Returns a message's place in the order, from its header `ps-clock`."""
    clock, _, rest = text.partition("@")
    topic, _, number = rest.partition("#")
    return int(clock), topic, int(number)


class Logs:
    """The records that a plain consumer of committed records finds in topics, in the order of their logs.

    Waits until the bodies of `sent` are at all of their topics: a future has resolved when the first topic has its
    message.
    """

    def __init__(
        self,
        broker: RunningKafka | LocalKafka,
        names: Sequence[str],
        sent: Mapping[bytes, Sequence[str]] | None = None,
    ) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.places: dict[str, list[tuple[int, str, int]]] = {}
        for name in names:
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": True}
            )
            consumer.assign([KafkaPartition(name, 0, 0)])
            self.bodies[name], self.places[name] = [], []
            missing = {body for body, topics in (sent or {}).items() if name in topics}
            while True:
                record = consumer.poll(PATIENCE)
                assert record is not None, f"{name} still has no {missing}"
                if record.error() is not None:
                    if missing:
                        continue
                    break
                missing.discard(record.value() or b"")
                headers = dict(record.headers() or [])
                said = headers["ps-clock"]
                assert isinstance(said, bytes)
                self.bodies[name].append(record.value() or b"")
                self.places[name].append(parse_place(said.decode()))
            consumer.close()

    def check_one_order(self) -> None:
        """Two topics have their common messages in the same order, and each log is in the order of the timestamps."""
        for one, two in combinations(self.bodies, 2):
            common = set(self.bodies[one]) & set(self.bodies[two])
            orders = [[body for body in self.bodies[name] if body in common] for name in (one, two)]
            assert orders[0] == orders[1]
        for name, places in self.places.items():
            assert places == sorted(set(places)), f"{name} isn't in the order of timestamps"
            batches: dict[tuple[int, str], list[int]] = {}
            for clock, topic, number in places:
                batches.setdefault((clock, topic), []).append(number)
            assert all(numbers == list(range(len(numbers))) for numbers in batches.values()), "a torn batch"


@pytest.mark.slow
def test_one_multicast_does_not_overtake_another(
    broker: RunningKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    """The first violation that the seed names: deliveries of two multicasts cross."""
    chances = random.Random(1)
    sent: dict[bytes, Sequence[str]] = {}

    def publish(client: PubSub, who: str, plan: Sequence[Sequence[str]]) -> None:
        futures = [client.publish_multi(some, f"{who}{n}".encode()) for n, some in enumerate(plan)]
        for future in futures:
            future.result(PATIENCE)

    plans = {who: [chances.sample(names, chances.randint(1, 4)) for _ in range(150)] for who in "pq"}
    for who, plan in plans.items():
        sent |= {f"{who}{number}".encode(): some for number, some in enumerate(plan)}
    threads = [
        threading.Thread(target=publish, args=(client, who, plans[who]))
        for client, who in ((ps, "p"), (other, "q"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs = Logs(broker, names, sent)
    logs.check_one_order()
    for name in names:
        wanted = [body for body, topics in sent.items() if name in topics]
        assert sorted(logs.bodies[name]) == sorted(wanted), "at all its topics, once"
        for mark in (b"p", b"q"):
            mine = [int(body[1:]) for body in logs.bodies[name] if body[:1] == mark]
            assert mine == sorted(mine), "what was published later comes later"


def test_a_reaction_comes_after_its_cause_at_every_topic(
    broker: RunningKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    """The second violation: a process receives a multicast, and its reaction overtakes the multicast elsewhere."""
    a, b, c, _ = names
    sub = other.create_subscription(f"sub-{a}", a)
    reactions = []

    def react(message: Message) -> None:
        reactions.append(other.publish_multi([b, c], b"re:" + message.data))
        message.ack()

    with sub.pull(react):
        for number in range(60):
            ps.publish_multi([a, b, c], b"%d" % number)
        until(lambda: len(reactions) == 60 and all(each.done() for each in reactions))
    sent = {b"%d" % number: [a, b, c] for number in range(60)}
    logs = Logs(broker, names, sent | {b"re:" + body: [b, c] for body in sent})
    logs.check_one_order()
    for name in (b, c):
        at = {body: place for place, body in enumerate(logs.bodies[name])}
        assert len(at) == 120
        assert all(at[b"%d" % number] < at[b"re:%d" % number] for number in range(60))


def test_side_channels_are_causes_too(
    broker: RunningKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    """The bus sees nothing of the signal by which a single process tells the other that its message is sent."""
    chances = random.Random(2)
    pairs: list[tuple[set[str], Future[Sent]]] = []
    sent: dict[bytes, Sequence[str]] = {}
    for number in range(60):
        first, second = ([names[0], *chances.sample(names[1:], 2)] for _ in range(2))
        ps.publish_multi(first, b"first %d" % number).result(PATIENCE)
        sent |= {b"first %d" % number: first, b"second %d" % number: second}
        pairs.append((set(first) & set(second), other.publish_multi(second, b"second %d" % number)))
    for _, future in pairs:
        future.result(PATIENCE)
    logs = Logs(broker, names, sent)
    logs.check_one_order()
    for number, (common, _) in enumerate(pairs):
        for name in common:
            found = logs.bodies[name]
            assert found.index(b"first %d" % number) < found.index(b"second %d" % number)


def test_a_message_is_at_all_its_topics_or_at_none(
    broker: RunningKafka, ps: PubSub, names: list[str]
) -> None:
    a, b, c, _ = names
    ps.publish_multi([a, b, c], b"before").result(PATIENCE)
    ps._cluster.backend.admin.update_topic(b, {"max.message.bytes": "10000"})
    with PubSub(broker.bootstrap) as fresh, pytest.raises(InvalidArgument, match=b):
        fresh.publish_multi([a, b, c], random.Random(3).randbytes(20_000))
    ps.delete_topic(c)
    with pytest.raises(NotFound, match=c):
        ps.publish_multi([a, b, c], b"after").result(PATIENCE)
    ps.publish_multi([a, b], b"last").result(PATIENCE)
    assert Logs(broker, [a, b], {b"last": [a, b]}).bodies == {
        a: [b"before", b"last"],
        b: [b"before", b"last"],
    }


def test_a_message_is_ordered_against_the_deletion_of_its_topic(
    broker: RunningKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    """Before it: delivered. After it: failed, at all topics. A handle that comes after its notice is invalid."""
    a, b, c, _ = names
    sub = ps.create_subscription(f"sub-{a}", a, message_ordering=True)
    other.publish_multi([a, b], b"warm").result(PATIENCE)
    sent = {}

    def publish() -> None:
        for number in range(60):
            sent[number] = other.publish_multi([a, c], b"%d" % number, ordering_key="k", handles=[b])

    publishing = threading.Thread(target=publish)
    publishing.start()
    until(lambda: len(sent) > 10)
    ps.delete_topic(b, notify=[a])
    publishing.join()
    for future in sent.values():
        future.result(PATIENCE)
    got: list[Message] = []

    def take(message: Message) -> None:
        got.append(message)
        message.ack()

    with sub.pull(take):
        until(lambda: len(got) >= 62)
    bodies: Mapping[bytes, Message] = {each.data: each for each in got}
    notice = bodies[b.encode()]
    assert notice.event == "topic_deleted"
    order = Logs(broker, [a]).bodies[a]
    deleted_at = order.index(b.encode())
    for number in range(60):
        body = b"%d" % number
        assert bodies[body].handles == ((b,) if order.index(body) < deleted_at else ())


def test_unrelated_topics_do_not_wait_for_each_other(
    broker: RunningKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    """Locality: a publisher that waits for its message holds up no message of others."""
    a, b, c, d = names
    sequence = [ps.publish_multi([a, b] if n % 2 else [a], b"x%d" % n) for n in range(100)]
    assert other.publish_multi([c, d], b"y").result(PATIENCE).timestamp.clock == 1, (
        "its clocks have seen nothing"
    )
    for future in sequence:
        future.result(PATIENCE)
    logs = Logs(broker, names, {b"y": [c, d]})
    assert logs.bodies[c] == logs.bodies[d] == [b"y"]
