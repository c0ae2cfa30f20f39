"""Under the protocol `consumer` a member's epoch rises without an assignment: its transactions must go on.

Brokers 4.0 to 4.2 refuse a transaction that names an older epoch than the member's own; 4.3 accepts it as long as the
partition was assigned in that epoch or before. The embedded broker is a 4.3; the others are fetched, so they are slow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.model import Committed, Ending, Membership, NewRecord, TopicPartition
from tests.integration.kafka.member import PATIENCE
from tests.integration.kafka.test_transactions import Member, step_until
from tests.support import commit

Unique = Callable[[str], str]

#: Seconds between two heartbeats under this protocol; the broker sets them.
HEARTBEAT = 5.0

#: Versions that compare epochs strictly.
STRICT = ["4.0.0", "4.1.1", "4.2.0"]


def fetch_kafka(version: str, home: Path) -> Path:
    """Makes `home` an unpacked Kafka of that version, from the artifacts that Maven's repositories have."""
    import jgo

    (home / "libs").mkdir(parents=True)
    for jar in jgo.build(f"org.apache.kafka:kafka_2.13:{version}", cache_dir=home / "cache").all_jars:
        (home / "libs" / Path(jar).name).symlink_to(Path(jar).resolve())
    return home


@pytest.fixture(scope="module", params=STRICT)
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that compares epochs strictly."""
    home = fetch_kafka(request.param, tmp_path_factory.mktemp("kafka"))
    with LocalKafka(kafka_home=home) as broker:
        yield broker


def raise_the_epoch(first: Member, second: Member, other: str) -> tuple[Membership, Membership]:
    """A second member joins for another topic; the first one's place before and after that."""
    before = first.membership
    second.reader.subscribe([other], second)
    step_until(lambda: second.owned and first.membership != before, first, second)
    return before, first.membership


def check_transactions(bootstrap: str, unique: Unique, *, before: Ending) -> None:
    topic, other, group = unique("t"), unique("t"), unique("g")
    backend = KafkaBackend(bootstrap, group_protocol="consumer")
    try:
        for name in (topic, other):
            backend.admin.create_topic(name, 2, None, {})
        first, second = Member(backend, group, topic), Member(backend, group)
        step_until(lambda: len(first.owned) == 2, first)
        old, new = raise_the_epoch(first, second, other)
        assert len(first.shares) == 1, "the first member's share has never changed"
        writer = backend.transactions(unique("w"))
        place = TopicPartition(topic, 0)
        for metadata, membership, ending in (("old", old, before), ("new", new, Ending.STORED)):
            outcome = writer.transact(
                [NewRecord(topic, 0, None, b"v")], {place: Committed(1, metadata)}, membership
            )
            assert outcome.ending is ending, (metadata, outcome)
        assert commit(first.reader, {place: Committed(2, "plain")}) == {place: None}
    finally:
        backend.close()


def test_a_member_follows_its_epoch(kafka: RunningKafka, unique: Unique) -> None:
    check_transactions(kafka.bootstrap, unique, before=Ending.STORED)


@pytest.mark.slow
def test_a_strict_broker_takes_transactions_of_the_newer_epoch_only(
    strict: LocalKafka, unique: Unique
) -> None:
    check_transactions(strict.bootstrap, unique, before=Ending.ABORTED)


@pytest.mark.slow
def test_redelivery_goes_on_when_the_epoch_rises_on_a_strict_broker(
    strict: LocalKafka, unique: Unique
) -> None:
    topic, other, group = unique("t"), unique("t"), unique("g")
    acked, again = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1:
            message.nack()
        else:
            message.ack()
            (acked if message.data == b"before" else again).set()

    backend = KafkaBackend(strict.bootstrap, group_protocol="consumer")
    try:
        with PubSub(strict.bootstrap, group_protocol="consumer") as ps:
            ps.create_topic(topic, partitions=2)
            backend.admin.create_topic(other, 1, None, {})
            retry = RetryPolicy(min_backoff=0.05, max_backoff=0.3)
            sub = ps.create_subscription(group, topic, message_ordering=True, retry=retry)
            with sub.pull(handle) as stream:
                ps.topic(topic).publish(b"before", ordering_key="k").result(PATIENCE)
                assert acked.wait(PATIENCE)
                second = Member(backend, group, other)
                step_until(lambda: second.owned, second)
                # The group's epoch has risen; the stream's own rises with its next heartbeat.
                end = time.monotonic() + HEARTBEAT + 1
                step_until(lambda: time.monotonic() > end, second)
                ps.topic(topic).publish(b"after", ordering_key="k").result(PATIENCE)
                step_until(again.is_set, second)
                assert not stream.done()
                second.reader.close()
    finally:
        backend.close()
