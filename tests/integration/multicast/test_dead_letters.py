"""What a sequencer can't deliver goes to the topic of dead letters, where any Kafka client finds it."""

from __future__ import annotations

import random

from confluent_kafka import Message, Producer

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.multicast.batch import count_of_batch
from kafka_pubsub.multicast.service import Sequencer
from tests.causal import PATIENCE, log
from tests.support import until

#: The topics of a test.
LETTERS = "ab"


def header(record: Message, name: str) -> bytes:
    value = dict(record.headers() or [])[name]
    assert isinstance(value, bytes)
    return value


def test_a_message_that_is_too_large_by_now_is_a_dead_letter_and_the_rest_of_its_batch_comes_home(
    broker: LocalKafka, ps: PubSub, names: list[str]
) -> None:
    a, b = names
    large = random.Random(1).randbytes(50_000)
    futures = [ps.publish_multi(names, data, ordering_key="k") for data in (b"0", b"1", large, b"2")]
    until(
        lambda: sum(count_of_batch(each.value()) for each in log(broker, f"{a}.inbox") if each.value()) == 4,
        "stages",
    )
    ps._cluster.backend.admin.update_topic(b, {"max.message.bytes": "10000"})
    with Sequencer(ps):
        sent = [future.result(PATIENCE) for future in futures]
        last = ps.publish_multi([b], b"3").result(PATIENCE)
        until(lambda: len(log(broker, a)) == len(log(broker, b)) == 4, f"the messages in {a} and {b}")
    assert [each.value() for each in log(broker, a)] == [b"0", b"1", large, b"2"]
    assert [each.value() for each in log(broker, b)] == [b"0", b"1", b"2", b"3"]
    assert last.timestamp > sent[-1].timestamp
    (dead,) = [
        each
        for each in log(broker, "_kafka_pubsub.multicast.dead")
        if header(each, "ps-multicast-topic").decode() == b
    ]
    assert (dead.key(), dead.value()) == (b"k", large)
    assert header(dead, "ps-id").decode() == sent[2].message_id
    assert b"max.message.bytes" in header(dead, "ps-multicast-dead")
    (letter,) = ps.multicast.dead_letters(topic=b)
    assert "exceeds the limit" in (letter.problem or "")
    ps._cluster.backend.admin.update_topic(b, {"max.message.bytes": "1000000"})
    with Sequencer(ps):
        assert ps.multicast.replay(topic=b).count == 1
        until(lambda: len(log(broker, b)) == 5, f"the replayed message in {b}")
    again = log(broker, b)[-1]
    assert (again.key(), again.value(), header(again, "ps-id").decode()) == (b"k", large, sent[2].message_id)
    assert (len(log(broker, a)), list(ps.multicast.dead_letters(topic=b))) == (4, [])


def test_a_foreign_record_of_an_inbox_is_a_dead_letter(
    broker: LocalKafka, ps: PubSub, names: list[str]
) -> None:
    a, b = names
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{a}.inbox", b"value", b"key", headers=[("x", b"y")])
    assert producer.flush(PATIENCE) == 0
    with Sequencer(ps):
        ps.publish_multi([a, b], b"ours").result(PATIENCE)
        until(lambda: len(log(broker, a)) == 1)
    assert [each.value() for each in log(broker, a)] == [b"ours"]
    (dead,) = [
        each
        for each in log(broker, "_kafka_pubsub.multicast.dead")
        if header(each, "ps-multicast-topic").decode() == a
    ]
    assert (dead.key(), dead.value(), header(dead, "x")) == (b"key", b"value", b"y")
    assert b"isn't ours" in header(dead, "ps-multicast-dead")
