"""What causal topics refuse: listed, brought home once at a new place in the order, and purged."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kafka_pubsub import MulticastDeadLetter, PubSub, aio
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import NewRecord, TopicPartition
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until
from tests.unit.multicast.test_multicast import home
from tests.unit.multicast.wrong_brokers import Wrong

PATIENCE = 20.0


def let_die(
    topics: PubSub, sequencer: Sequencer, faults: Wrong, count: int = 1, handles: tuple[str, ...] = ()
) -> list[str]:
    """Publishes messages to `a` and `b`, of which `b` refuses all."""
    before = sequencer.metrics().get("undeliverable", 0)
    faults.unwritable["b"] = InvalidArgument("too large")
    ids = [
        topics.publish_multi(
            ["a", "b"], b"%d" % n, ordering_key=f"k{n % 2}", attributes={"n": str(n)}, handles=handles
        )
        .result(PATIENCE)
        .message_id
        for n in range(count)
    ]
    until(lambda: sequencer.metrics().get("undeliverable", 0) == before + count)
    faults.unwritable.clear()
    return ids


def letters(ps: PubSub) -> dict[bytes, MulticastDeadLetter]:
    return {each.data: each for each in ps.multicast.dead_letters()}


def test_nothing_is_dead_where_nothing_was_refused(ps: PubSub) -> None:
    assert list(ps.multicast.dead_letters()) == []
    assert ps.multicast.replay().count == 0
    assert ps.multicast.purge().count == 0


def test_a_dead_letter_says_what_the_message_was_and_why_it_was_refused(
    topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    (message_id,) = let_die(topics, sequencer, faults, handles=("c",))
    (letter,) = topics.multicast.dead_letters()
    assert (letter.message_id, letter.topic, letter.reason) == (message_id, "b", "too large")
    assert (letter.data, letter.ordering_key, letter.attributes) == (b"0", "k0", {"n": "0"})
    assert (letter.handles, letter.problem) == (("c",), None)
    assert letter.published <= letter.died <= datetime.now(UTC)


def test_a_replay_brings_each_home_once_at_a_new_place_with_id_key_and_attributes(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    ids = let_die(topics, sequencer, faults, 4)
    published = {each.message_id: each.published for each in topics.multicast.dead_letters()}
    sub = topics.create_subscription("s", "b")
    last = topics.publish_multi(["b"], b"last").result(PATIENCE)
    assert topics.multicast.replay(dry_run=True).count == 4
    result = topics.multicast.replay()
    assert (result.count, result.keys, result.skipped) == (4, 2, {})
    until(lambda: len(home(backend, "b")) == 5)
    assert topics.multicast.replay().count == 0
    assert list(topics.multicast.dead_letters()) == []
    assert home(backend, "a") == [b"0", b"1", b"2", b"3"]
    found = sub.receive(10, PATIENCE)
    assert [each.data for each in found] == [b"last", b"0", b"1", b"2", b"3"]
    assert [each.message_id for each in found] == [last.message_id, *ids]
    for number, message in enumerate(found[1:]):
        assert (message.ordering_key, message.attributes) == (f"k{number % 2}", {"n": str(number)})
        assert message.publish_time == published[message.message_id]
    clocks = [int(dict(each.headers)["ps-clock"].partition(b"@")[0]) for each in found]  # type: ignore[union-attr]
    assert clocks == sorted(clocks)


def test_a_replayed_message_carries_those_of_its_handles_whose_topics_are_there(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    topics.create_topic("d", causal=True)
    let_die(topics, sequencer, faults)
    let_die(topics, sequencer, faults, handles=("c", "d"))
    let_die(topics, sequencer, faults, handles=("c",))
    topics.delete_topic("d")
    sub = topics.create_subscription("s", "b")
    assert topics.multicast.replay().count == 3
    until(lambda: len(home(backend, "b")) == 3)
    assert [each.handles for each in sub.receive(3, PATIENCE)] == [(), ("c",), ("c",)]
    assert home(backend, "c") == []


def test_what_cannot_go_home_stays_and_is_counted(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    let_die(topics, sequencer, faults)
    backend.transactions("foreign").transact([NewRecord("a.inbox", 0, b"k", b"foreign")], {}, None)
    topics.publish_multi(["a"], b"behind").result(PATIENCE)
    assert "isn't ours" in (letters(topics)[b"foreign"].problem or "")
    topics.delete_topic("b")
    assert "topic 'b' doesn't exist: make it again" in (letters(topics)[b"0"].problem or "")
    result = topics.multicast.replay()
    assert (result.count, sum(result.skipped.values())) == (0, 2)
    topics.create_topic("b", causal=True)
    backend.admin.update_topic("b", {"max.message.bytes": "100"})
    assert "exceeds the limit" in (letters(topics)[b"0"].problem or "")
    backend.admin.update_topic("b", {"max.message.bytes": "10000"})
    assert topics.multicast.replay().count == 1
    until(lambda: home(backend, "b") == [b"0"])
    assert set(letters(topics)) == {b"foreign"}


def test_some_are_picked_by_id_or_topic_and_others_purged(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    ids = let_die(topics, sequencer, faults, 3)
    assert [each.data for each in topics.multicast.dead_letters(ids=[ids[1]])] == [b"1"]
    assert list(topics.multicast.dead_letters(topic="a")) == []
    assert topics.multicast.replay(ids=[letters(topics)[b"1"].id]).count == 1
    assert topics.multicast.purge(dry_run=True).count == 2
    assert topics.multicast.purge(topic="b").count == 2
    assert list(topics.multicast.dead_letters()) == []
    until(lambda: home(backend, "b") == [b"1"])


def test_the_asyncio_version_has_all_three(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    ids = let_die(topics, sequencer, faults, 2)

    async def look() -> None:
        async with aio.PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as ps:
            assert [each.message_id async for each in ps.multicast.dead_letters()] == ids
            assert (await ps.multicast.replay(ids=ids[:1])).count == 1
            assert (await ps.multicast.purge()).count == 1

    asyncio.run(look())
    until(lambda: home(backend, "b") == [b"0"])


def test_a_replayed_message_doesnt_pass_one_that_waits_for_the_topic_of_its_handle(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    for handles in (("c",), ()):
        let_die(topics, sequencer, faults, handles=handles)
    for _ in range(20):  # so that the topic of the handle proposes a late place
        topics.publish_multi(["c"], b"x").result(PATIENCE)
    assert topics.multicast.replay().count == 2
    until(lambda: len(home(backend, "b")) == 2)
    place = TopicPartition("b", 0)
    records = backend.record_fetch().fetch(place, range(*backend.admin.log_range(place)), 2**20, 1.0).records
    assert [dict(each.headers() or ()).get("ps-handles") for each in records] == [b"c", None]
