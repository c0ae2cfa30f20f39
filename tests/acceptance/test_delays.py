"""The promises of a distributed time delay, statement by statement, on a real Kafka.

The routers' topics and group are the cluster's, so all tests of this file share a single router.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient

from kafka_pubsub import DeadLetterPolicy, InvalidArgument, Message, PubSub, RetryPolicy
from kafka_pubsub.delays.layout import DEAD, INGEST, tier_topic
from kafka_pubsub.delays.records import decode_delayed
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.delay_journey import DELAYS, Journey, Routers, Watch, travel
from tests.acceptance.support import PATIENCE, Deliveries, Room, until

#: Seconds of the longest delay: 28 binary digits that are all 1.
LONGEST = 2**28 - 1
#: Seconds by which a message may be late, as the seed says.
ACCURACY = 1.0
#: Seconds: clocks are read to the millisecond.
CLOCK = 0.002
QUICK = RetryPolicy(min_backoff=0.05, max_backoff=0.1)


@pytest.fixture(scope="module")
def routers(kafka: RunningKafka) -> Iterator[Routers]:
    with PubSub(kafka.bootstrap) as ps:
        routers = Routers(ps)
        yield routers
        routers.stop()


@pytest.fixture(scope="module")
def journey(kafka: RunningKafka, routers: Routers) -> Journey:
    with PubSub(kafka.bootstrap) as ps:
        return travel(ps, kafka.bootstrap)


def header(record: KafkaMessage, name: str) -> bytes | None:
    value = dict(record.headers() or []).get(name)
    return value.encode() if isinstance(value, str) else value


# The tiers


def test_there_is_one_tier_for_each_power_of_two(kafka: RunningKafka, routers: Routers) -> None:
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=PATIENCE).topics
    ours = sorted(topic for topic in topics if topic.startswith("_kafka_pubsub.delay."))
    assert ours == sorted([*(tier_topic(number) for number in range(28)), INGEST, DEAD])


@pytest.mark.parametrize(
    ("delay", "tiers"),
    [
        (0, []),
        (0.25, []),
        (1, [0]),
        (1.5, [0]),
        (2, [1]),
        (3, [1, 0]),
        (5, [2, 0]),
        (6, [2, 1]),
        (7, [2, 1, 0]),
    ],
)
def test_a_message_visits_the_tiers_of_its_binary_digits(
    journey: Journey, delay: float, tiers: list[int]
) -> None:
    """The largest first, each once: 5 seconds are 101, so tier 2 and then tier 0."""
    some = [each for each in journey.sent if each.delay == delay]
    assert len(some) == DELAYS.count(delay)
    assert [journey.path(each) for each in some] == [tiers] * len(some)


def test_a_message_waits_in_each_tier_for_its_power_of_two(journey: Journey) -> None:
    for sent in journey.sent:
        hops = journey.of(sent, *(tier_topic(number) for number in range(3)))
        said = [decode_delayed(header(each, "ps-delay")) for each in hops]
        for tier, hop in zip(journey.path(sent), said, strict=True):
            assert hop is not None
            assert hop.left == int(sent.delay) % 2**tier, "the digits that are still to come"
            assert hop.due - hop.leaves == round((hop.left + sent.delay % 1) * 1000)


def test_a_message_hops_no_more_often_than_its_delay_has_ones(journey: Journey) -> None:
    for sent in journey.sent:
        on_its_way = [
            each for each in journey.records if each.value() == sent.body and each.topic() != journey.home
        ]
        ingest = 1 if sent.delay else 0
        assert len(on_its_way) == ingest + int(sent.delay).bit_count(), sent


def test_a_delay_of_zero_goes_straight_home(journey: Journey) -> None:
    (sent,) = [each for each in journey.sent if each.delay == 0]
    assert journey.of(sent, INGEST) == []
    assert sent.message_id.startswith(f"{journey.home}:")


# At home


def test_a_plain_consumer_of_committed_records_sees_each_message_once(journey: Journey) -> None:
    for sent in journey.sent:
        (record,) = journey.of(sent, journey.home)
        assert record.key() == (None if sent.key is None else sent.key.encode())
        assert header(record, "n") == sent.body.split()[1]
        assert header(record, "ps-delay") is None


def test_a_message_has_the_id_that_its_future_said(journey: Journey) -> None:
    came = {each.message.data: each.message.message_id for each in journey.arrivals}
    assert came == {sent.body: sent.message_id for sent in journey.sent}
    assert len(journey.arrivals) == len(came), "each was delivered once"
    for sent in journey.sent:
        if sent.delay:
            (record,) = journey.of(sent, INGEST)
            assert sent.message_id == f"{INGEST}:{record.partition()}:{record.offset()}"


def test_no_message_is_early(journey: Journey) -> None:
    came = {each.message.data: each.at for each in journey.arrivals}
    for sent in journey.sent:
        assert came[sent.body] >= sent.began + sent.delay - CLOCK
        (record,) = journey.of(sent, journey.home)
        assert record.timestamp()[1] / 1000 >= sent.began + sent.delay - CLOCK


def test_messages_are_delivered_within_a_second_of_their_time(journey: Journey) -> None:
    for sent in journey.sent:
        (record,) = journey.of(sent, journey.home)
        assert record.timestamp()[1] / 1000 <= sent.ended + sent.delay + ACCURACY
    came = {each.message.data: each.at for each in journey.arrivals}
    # A busy machine may hold up a single subscriber's thread.
    assert statistics.median(came[sent.body] - sent.ended - sent.delay for sent in journey.sent) < ACCURACY


# The delays that are allowed


def test_the_longest_delay_is_accepted_and_begins_in_the_largest_tier(
    kafka: RunningKafka, routers: Routers, room: Room
) -> None:
    topic = room.topic(partitions=1)
    watch = Watch(kafka.bootstrap, [tier_topic(27)])
    body = room.name.encode()
    began = time.time()
    message_id = topic.publish(body, delay=LONGEST).result(PATIENCE)
    (record,) = watch.wait_for(lambda each: each.value() == body, 1)
    watch.close()
    said = decode_delayed(header(record, "ps-delay"))
    assert said is not None
    assert message_id == f"{INGEST}:{record.partition()}:{said.offset}"
    assert said.left == 2**27 - 1, "27 digits are still to come"
    assert said.leaves / 1000 >= began + 2**27 - CLOCK
    assert said.due - said.leaves == said.left * 1000


@pytest.mark.parametrize(
    "when",
    [
        {"delay": LONGEST + 1},
        {"delay": timedelta(seconds=LONGEST, milliseconds=1)},
        {"deliver_at": datetime.now(UTC) + timedelta(seconds=LONGEST + 3600)},
    ],
    ids=["a second", "a millisecond", "a date"],
)
def test_a_longer_delay_is_refused_with_how_long_it_may_be(
    routers: Routers, room: Room, when: dict[str, float | timedelta | datetime]
) -> None:
    topic = room.topic(partitions=1)
    (name,) = when
    with pytest.raises(InvalidArgument, match=rf"{name}: .* longer than the 3106 days.*\({LONGEST} s\)"):
        topic.publish(b"x", **when)  # type: ignore[arg-type]


# Order


def test_a_key_is_in_the_order_of_due_times_then_of_publishing(
    routers: Routers, room: Room, log: Deliveries
) -> None:
    topic, subscription = room.pair()
    # All have to be published before the first is due, on a busy machine too.
    due = datetime.now(UTC) + timedelta(seconds=6)
    millisecond = timedelta(milliseconds=1)
    wanted = {
        b"4": due,
        b"5": due,
        b"2": due - millisecond * 1500,
        b"7": due + millisecond,
        b"6": due,
        b"3": due - millisecond,
        b"1": due - millisecond * 1501,
    }
    with subscription.pull(log.ack):
        for body, at in wanted.items():
            topic.publish(body, ordering_key="a", deliver_at=at)
            topic.publish(body, ordering_key="b", deliver_at=at)
        topic.flush(PATIENCE)
        log.wait_for(2 * len(wanted))
    assert log.by_key == {"a": sorted(wanted), "b": sorted(wanted)}
    assert log.most_of_a_key == 1


# Nothing is lost


def test_a_message_waits_for_no_process(kafka: RunningKafka, routers: Routers, room: Room) -> None:
    """Publisher and router end while the message waits in a tier; the next router brings the message home, once."""
    topic = room.topic(partitions=1)
    watch = Watch(kafka.bootstrap, [topic.name, *map(tier_topic, range(2))])
    delays = {f"{room.name} {delay}".encode(): delay for delay in (1, 2, 3)}
    with PubSub(kafka.bootstrap, create=False) as publisher:
        began = time.time()
        for body, delay in delays.items():
            publisher.topic(topic.name).publish(body, delay=delay).result(PATIENCE)
    watch.wait_for(lambda each: each.value() in delays and each.topic() != topic.name, len(delays))
    with routers.away():
        pass
    records = watch.wait_for(lambda each: each.topic() == topic.name, len(delays))
    watch.close()
    assert sorted(record.value() or b"" for record in records) == sorted(delays)
    for record in records:
        assert record.timestamp()[1] / 1000 >= began + delays[record.value() or b""] - CLOCK


def test_the_future_resolves_when_the_message_is_durably_waiting(
    kafka: RunningKafka, routers: Routers, room: Room
) -> None:
    """No router is needed for that. A relative delay counts from there, whether a router runs or not."""
    topic = room.topic(partitions=1)
    watch = Watch(kafka.bootstrap, [topic.name])
    with routers.away():
        began = time.time()
        message_id = topic.publish(b"relative", delay=4).result(PATIENCE)
        date = datetime.now(UTC) + timedelta(seconds=0.3)
        topic.publish(b"date", deliver_at=date).result(PATIENCE)
        assert read_at(kafka, message_id) == b"relative"
        until(lambda: datetime.now(UTC) > date)
    date_record, relative_record = watch.wait_for(lambda each: True, 2)
    watch.close()
    assert (date_record.value(), relative_record.value()) == (b"date", b"relative")
    assert header(relative_record, "ps-id") == message_id.encode()
    assert relative_record.timestamp()[1] / 1000 >= began + 4 - CLOCK


def read_at(kafka: RunningKafka, message_id: str) -> bytes | None:
    """The committed record at the place that an id names."""
    topic, partition, offset = message_id.rsplit(":", 2)
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "reads-one-record", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, int(partition), int(offset))])
    (record,) = consumer.consume(1, PATIENCE)
    consumer.close()
    assert record.error() is None
    return record.value()


def test_a_message_without_a_home_is_a_dead_letter(kafka: RunningKafka, routers: Routers, room: Room) -> None:
    topic = room.topic(partitions=1)
    watch = Watch(kafka.bootstrap, [DEAD])
    body = room.name.encode()
    with routers.away():
        topic.publish(body, ordering_key="k", attributes={"a": "b"}, delay=1).result(PATIENCE)
        room.ps.delete_topic(topic.name)
    (record,) = watch.wait_for(lambda each: each.value() == body, 1)
    watch.close()
    assert header(record, "ps-delay-dead") == f"home topic {topic.name!r} doesn't exist any more".encode()
    assert header(record, "a") == b"b"
    assert record.key() == f"{topic.name}\0k".encode()


def test_a_record_that_another_program_wrote_is_a_dead_letter(
    kafka: RunningKafka, routers: Routers, room: Room
) -> None:
    watch = Watch(kafka.bootstrap, [DEAD])
    body = room.name.encode()
    stranger = Producer({"bootstrap.servers": kafka.bootstrap})
    stranger.produce(INGEST, body, key=b"theirs", headers=[("a", b"b")])
    assert stranger.flush(PATIENCE) == 0
    (record,) = watch.wait_for(lambda each: each.value() == body, 1)
    watch.close()
    assert (record.key(), header(record, "a")) == (b"theirs", b"b")
    assert b"it wasn't written by kafka_pubsub" in (header(record, "ps-delay-dead") or b"")


# With everything else


def test_delays_go_with_keys_retries_dead_letters_and_durable_acks(
    routers: Routers, room: Room, log: Deliveries
) -> None:
    """The second message of a key fails at every attempt; the others are acked durably, once, in the key's order."""
    dead_letters = room.topic(partitions=1)
    policy = DeadLetterPolicy(topic=dead_letters.name, max_attempts=5)
    topic, subscription = room.pair(exactly_once=True, retry=QUICK, dead_letter=policy)
    buried = room.subscription(dead_letters)
    ids: set[str] = set()

    def handle(message: Message) -> None:
        with log.handling(message):
            ids.add(message.message_id)
            if message.data == b"1":
                message.nack()
            else:
                message.ack_with_response().result(PATIENCE)

    published = {
        topic.publish(b"%d" % n, ordering_key=key, delay=1 + n / 10).result(PATIENCE)
        for n in range(4)
        for key in ("a", "b")
    }
    with subscription.pull(handle):
        log.wait_for_distinct(len(published))
        found = list(buried.receive(1, timeout=PATIENCE))
        found += buried.receive(1, timeout=PATIENCE)
    assert ids == published
    assert log.first_of_each() == {key: [b"0", b"1", b"2", b"3"] for key in ("a", "b")}
    assert log.by_key["a"] == log.by_key["b"] == [b"0", *[b"1"] * 5, b"2", b"3"]
    assert {(each.data, each.ordering_key) for each in found} == {(b"1", "a"), (b"1", "b")}
    buried.acknowledge([each.ack_id for each in found])
    until(lambda: subscription.state().lag == 0, "no lag")
