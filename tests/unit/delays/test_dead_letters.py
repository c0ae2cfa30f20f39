"""Messages that no router can deliver: listed, brought home once, and purged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import DelayDeadLetter, InvalidArgument, PubSub
from kafka_pubsub.config import Batching
from kafka_pubsub.delays.layout import DEAD, INGEST
from kafka_pubsub.delays.records import DELAY_HEADER, DelayRequest, encode_request
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Header, TopicPartition
from tests.support import until
from tests.unit.delays.test_role import bodies, ids_of, stored

TIERS = 3


def dead_letters(ps: PubSub) -> dict[bytes, DelayDeadLetter]:
    return {each.data: each for each in ps.delays.dead_letters()}


def let_die(ps: PubSub, count: int = 1, delay: float = 0.2) -> list[str]:
    """Publishes with a delay, and deletes the topic before a router runs."""
    topic = ps.create_topic("orders", partitions=3, exist_ok=True)
    router = DelayRouter(ps, tiers=TIERS, partitions=2)
    futures = [
        topic.publish(b"%d" % n, ordering_key=f"k{n % 2}", attributes={"n": str(n)}, delay=delay)
        for n in range(count)
    ]
    ids = [future.result(10) for future in futures]
    ps.delete_topic("orders")
    with router:
        until(lambda: router.metrics().get("dead") == count)
    return ids


def write(backend: MemoryBackend, topic: str, value: bytes, key: bytes | None, *headers: Header) -> None:
    writer = backend.writer(Batching(), 10**6)
    writer.append(topic, value, key, headers, lambda *_: None)
    writer.close()


def test_nothing_is_dead_where_nothing_was_delayed(ps: PubSub) -> None:
    assert list(ps.delays.dead_letters()) == []
    assert ps.delays.replay().count == 0
    assert ps.delays.purge().count == 0


def test_a_dead_letter_says_what_the_message_was_and_why_it_died(ps: PubSub) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    ids = let_die(ps, 2, delay=1.1)
    found = dead_letters(ps)
    assert set(found) == {b"0", b"1"}
    for n, message_id in enumerate(ids):
        letter = found[b"%d" % n]
        assert letter.message_id == message_id
        assert (letter.topic, letter.ordering_key, letter.attributes) == ("orders", f"k{n}", {"n": str(n)})
        assert letter.reason == "home topic 'orders' doesn't exist any more"
        assert letter.problem is not None
        assert "make it again" in letter.problem
        assert letter.due is not None
        assert before < letter.due <= letter.died


def test_a_replay_brings_each_home_once_with_id_key_and_attributes(
    ps: PubSub, backend: MemoryBackend
) -> None:
    ids = let_die(ps, 6)
    assert ps.delays.replay().count == 0, "there is no topic"
    ps.create_topic("orders", partitions=3)
    assert ps.delays.replay(dry_run=True).count == 6
    assert bodies(backend) == []
    result = ps.delays.replay()
    assert (result.count, result.keys, result.skipped) == (6, 2, {})
    assert sorted(ids_of(backend, "orders")) == sorted(ids)
    for record in stored(backend, "orders"):
        number = (record.value() or b"").decode()
        said = dict(record.headers() or ())
        assert set(said) == {"ps-id", "n"}
        assert said["n"] == number.encode()
        assert record.key() == b"k%d" % (int(number) % 2)
        assert abs(record.timestamp()[1] / 1000 - datetime.now(UTC).timestamp()) < 60
    for key in (b"k0", b"k1"):
        line = [record.value() for record in stored(backend, "orders") if record.key() == key]
        assert line == sorted(line, key=lambda value: value or b"")
    assert ps.delays.replay().count == 0
    assert list(ps.delays.dead_letters()) == []


def test_a_subscriber_sees_a_replayed_message_under_the_id_that_publish_gave(ps: PubSub) -> None:
    (message_id,) = let_die(ps)
    ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    ps.delays.replay()
    (message,) = sub.receive(1, timeout=10)
    assert (message.message_id, message.ordering_key, message.data) == (message_id, "k0", b"0")


def test_what_cannot_go_home_stays_and_is_counted(ps: PubSub, backend: MemoryBackend) -> None:
    (small,) = let_die(ps)
    far = encode_request(DelayRequest("orders", None, 10**9))
    with DelayRouter(ps) as router:
        write(backend, INGEST, b"foreign", b"x", ("a", b"b"))
        write(backend, INGEST, b"far", b"orders\0k", (DELAY_HEADER, far))
        write(backend, DEAD, b"no dead letter", None)
        large = ps.create_topic("bills").publish(bytes(5_000), delay=0.3)
        large.result(10)
        backend.admin.update_topic("bills", {"max.message.bytes": "1000"})
        until(lambda: router.metrics().get("dead") == 3)
    ps.create_topic("orders")
    problems = {letter.data[:9]: letter.problem or "" for letter in ps.delays.dead_letters()}
    assert set(problems) == {b"0", b"foreign", b"far", bytes(9)}
    assert not problems[b"0"]
    assert "wasn't written by kafka_pubsub" in problems[b"foreign"]
    assert "isn't due before" in problems[b"far"]
    result = ps.delays.replay()
    assert result.count == 1
    assert sum(result.skipped.values()) == 3
    assert any("its topic refuses it" in reason for reason in result.skipped)
    assert ids_of(backend, "orders") == [small]
    assert len(list(ps.delays.dead_letters())) == 3
    backend.admin.update_topic("bills", {"max.message.bytes": "100000"})
    assert ps.delays.replay(topic="bills").count == 1
    assert ids_of(backend, "bills") == [large.result()]


def test_some_are_picked_by_id_or_topic(ps: PubSub, backend: MemoryBackend) -> None:
    let_die(ps, 4)
    ps.create_topic("orders")
    picked = dead_letters(ps)[b"2"]
    assert [each.data for each in ps.delays.dead_letters(ids=[picked.id])] == [b"2"]
    assert [each.data for each in ps.delays.dead_letters(ids=[picked.message_id])] == [b"2"]
    assert list(ps.delays.dead_letters(topic="bills")) == []
    assert ps.delays.replay(topic="bills").count == 0
    assert ps.delays.replay(ids=[picked.id]).count == 1
    assert bodies(backend) == [b"2"]
    assert set(dead_letters(ps)) == {b"0", b"1", b"3"}
    with pytest.raises(InvalidArgument, match="ids: '7' is neither a message id"):
        ps.delays.replay(ids=["7"])


def test_a_purge_gives_up_and_frees_the_front(ps: PubSub, backend: MemoryBackend) -> None:
    let_die(ps, 5)
    assert ps.delays.purge(dry_run=True).count == 5
    assert ps.delays.purge().count == 5
    assert list(ps.delays.dead_letters()) == []
    for number in range(2):
        start, end = backend.admin.log_range(TopicPartition(DEAD, number))
        assert start == backend.admin.last_stable_offsets(DEAD)[number] <= end


def test_a_key_waits_while_its_topic_is_repartitioned(ps: PubSub, backend: MemoryBackend) -> None:
    from tests.unit.delays.test_homes_growing import announce

    let_die(ps)
    ps.create_topic("orders", partitions=3)
    announce(backend, 6)
    (reason,) = ps.delays.replay().skipped
    assert "is being repartitioned from 3 to 6 partitions" in reason
    announce(backend, None)
    assert ps.delays.replay().count == 1
