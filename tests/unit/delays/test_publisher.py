"""`publish_many` with delayed items among the others, on the log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_pubsub import InvalidArgument, Message, NotFound, OrderingKeyPaused, PubSub, ResourceExhausted, aio
from kafka_pubsub.config import PublishFlow
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition, PublishError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.publish.many import RUN, PublishItem
from tests.support import until
from tests.unit.delays.test_role import RefusedOnce

PATIENCE = 30.0
FUTURE = datetime(2033, 1, 1, tzinfo=UTC)
PAST = datetime(2003, 1, 1, tzinfo=UTC)


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory(services=False) as pubsub:
        yield pubsub


def waiting(ps: PubSub) -> dict[str, tuple[str | None, datetime | None]]:
    return {each.id: (each.ordering_key, each.due) for each in ps.delays.waiting()}


def test_each_item_goes_where_its_delay_says_and_the_ids_are_in_the_order_of_the_items(ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    items: list[bytes | PublishItem] = [
        b"alone",
        {"data": b"later", "delay": 600},
        {"data": b"much later", "ordering_key": "k", "attributes": {"a": "b"}, "deliver_at": FUTURE},
        {"data": b"keyed", "ordering_key": "k"},
        {"data": b"in an hour", "delay": timedelta(hours=1)},
        {"data": b"zero", "delay": 0},
        {"data": b"long ago", "deliver_at": PAST},
        {"data": b"none", "delay": None, "deliver_at": None},
    ]
    futures = topic.publish_many(items)
    ids = futures.result(PATIENCE)
    home, later = [0, 3, 5, 6, 7], [1, 2, 4]
    assert [ids[at] for at in home] == [f"orders:0:{n}" for n in range(5)]
    assert all(ids[at].startswith(f"{INGEST}:") for at in later)
    assert [future.result(PATIENCE) for future in futures] == ids
    found = waiting(ps)
    assert set(found) == {ids[at] for at in later}
    assert found[ids[2]] == ("k", FUTURE)
    (shown,) = ps.delays.waiting(ids[2])
    assert (shown.data, shown.topic, shown.attributes) == (b"much later", "orders", {"a": "b"})


def test_delayed_items_come_home_when_they_are_due_in_the_order_of_their_key(ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    sub = ps.create_subscription("billing", "orders", message_ordering=True)
    came: list[tuple[str, bytes]] = []

    def handle(message: Message) -> None:
        came.append((message.message_id, message.data))
        message.ack()

    due = datetime.now(UTC) + timedelta(seconds=0.3)
    with DelayRouter(ps, tiers=3), sub.pull(handle):
        ids = topic.publish_many(
            [
                {"data": b"3", "ordering_key": "k", "deliver_at": due + timedelta(milliseconds=1)},
                {"data": b"1", "ordering_key": "k", "deliver_at": due},
                {"data": b"2", "ordering_key": "k", "deliver_at": due},
                {"data": b"0", "ordering_key": "k"},
            ]
        ).result(PATIENCE)
        until(lambda: len(came) == 4)
    assert came == [(ids[3], b"0"), (ids[1], b"1"), (ids[2], b"2"), (ids[0], b"3")]


def test_many_delayed_items_keep_their_order_over_several_runs(ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    count = 3 * RUN + 7
    ids = topic.publish_many(
        {"data": b"%d" % n, "ordering_key": "k", "delay": 600} for n in range(count)
    ).result(PATIENCE)
    assert len({each.rpartition(":")[0] for each in ids}) == 1, "a key's messages take one partition"
    offsets = [int(each.rpartition(":")[2]) for each in ids]
    assert offsets == sorted(set(offsets))
    assert len(waiting(ps)) == count


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"data": b"x", "delay": -1}, r"items\[2\]: delay: must not be negative"),
        ({"data": b"x", "delay": float("nan")}, r"items\[2\]: delay: must be a finite number"),
        ({"data": b"x", "delay": "5m"}, r"items\[2\]: delay: must be seconds or a timedelta, not str"),
        ({"data": b"x", "delay": 2**28}, r"items\[2\]: delay: .* is longer than the"),
        (
            {"data": b"x", "deliver_at": FUTURE.replace(tzinfo=None)},
            r"items\[2\]: deliver_at: .* has no time zone",
        ),
        ({"data": b"x", "deliver_at": 5}, r"items\[2\]: deliver_at: must be a datetime, not int"),
        ({"data": b"x", "delay": 1, "deliver_at": FUTURE}, r"items\[2\]: delay and deliver_at: give one"),
        ({"data": "x", "delay": 1}, r"items\[2\]: data must be bytes"),
        ({"data": b"x", "delay": 1, "ordering_key": ""}, r"items\[2\]: Ordering key cannot be empty"),
        ({"data": b"x", "delay": 1, "wait": 5}, r"items\[2\] has 'wait', which is no argument of publish"),
        ({"data": bytes(2**21), "delay": 1}, r"items\[2\]: message of \d+ bytes .* of topic 'orders'"),
    ],
)
def test_a_wrong_item_is_named_with_its_field_and_nothing_is_sent(ps: PubSub, item: Any, text: str) -> None:
    topic = ps.create_topic("orders", partitions=1)
    with pytest.raises(InvalidArgument, match=text):
        topic.publish_many([b"a", {"data": b"b", "delay": 600}, item])
    assert waiting(ps) == {}
    assert topic.publish(b"first").result(PATIENCE) == "orders:0:0"


def test_a_message_must_have_room_for_its_id_at_home(ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=1)
    fits = 1_048_588 - 100
    topic.publish_many([bytes(fits)]).result(PATIENCE)
    with pytest.raises(InvalidArgument, match=r"items\[1\]: message of \d+ bytes .* of topic 'orders'"):
        topic.publish_many([b"a", {"data": bytes(fits), "delay": 600}])


def test_a_topic_that_is_missing_or_takes_no_keys_refuses_all(ps: PubSub) -> None:
    with pytest.raises(NotFound):
        ps.topic("nowhere").publish_many([{"data": b"x", "delay": 600}])
    topic = ps.create_topic("orders", message_ordering=False)
    with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
        topic.publish_many([b"a", {"data": b"x", "ordering_key": "k", "delay": 600}])
    assert waiting(ps) == {}


def test_without_the_right_to_make_the_tiers_nothing_is_sent() -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend, create=False, services=False) as ps:
        backend.admin.create_topic("orders", 1, None, {})
        topic = ps.adopt_topic("orders")
        with pytest.raises(FailedPrecondition, match="create=False"):
            topic.publish_many([b"a", {"data": b"x", "delay": 1}])
        assert topic.publish(b"first").result(PATIENCE) == "orders:0:0"


def test_items_of_a_paused_key_fail_by_themselves_and_the_others_go_on() -> None:
    with PubSub.in_memory(MemoryBackend(faults=RefusedOnce()), services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        first = topic.publish_many([{"data": b"first", "ordering_key": "k", "delay": 600}])
        with pytest.raises(PublishError):
            first.result(PATIENCE)
        futures = topic.publish_many(
            [
                {"data": b"no", "ordering_key": "k", "delay": 600},
                {"data": b"yes", "ordering_key": "k"},
                {"data": b"other", "ordering_key": "l", "delay": 600},
            ]
        )
        with pytest.raises(OrderingKeyPaused, match="'k' is paused for delayed messages of topic 'orders'"):
            futures[0].result(PATIENCE)
        assert futures[1].result(PATIENCE) == "orders:0:0"
        assert futures[2].result(PATIENCE).startswith(INGEST)
        topic.resume("k")
        again = topic.publish_many([{"data": b"first", "ordering_key": "k", "delay": 600}])
        assert again.result(PATIENCE)[0].startswith(INGEST)


class SlowReports(FaultPlan):
    """A message stored at home is reported a moment later."""

    def report_delay(self, topic: str, key: bytes | None) -> float:
        return 0.3 if topic == "orders" else 0.0


def test_from_the_first_item_that_finds_no_room_all_fail_delayed_or_not() -> None:
    with PubSub.in_memory(MemoryBackend(faults=SlowReports()), services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        topic.configure(flow=PublishFlow(max_messages=1, on_limit="error"))
        later: PublishItem = {"data": b"later", "delay": 600}
        futures = topic.publish_many([later, b"b", b"c", later, b"e"])
        for future in futures[2:]:
            with pytest.raises(ResourceExhausted):
                future.result(0)
        assert futures[0].result(PATIENCE).startswith(INGEST)
        assert futures[1].result(PATIENCE) == "orders:0:0"
        assert len(waiting(ps)) == 1
        with pytest.raises(ResourceExhausted):
            futures.result(PATIENCE)


def test_coroutines_publish_many_with_delays_too() -> None:
    async def work() -> None:
        async with asyncio.timeout(PATIENCE), aio.PubSub.in_memory(services=False) as ps:
            topic = await ps.create_topic("orders", partitions=1)
            items: list[bytes | PublishItem] = [
                b"now",
                {"data": b"x", "ordering_key": "k", "delay": timedelta(milliseconds=600_000)},
                {"data": b"y", "ordering_key": "k", "deliver_at": FUTURE},
                {"data": b"z", "deliver_at": PAST},
            ]
            ids = await asyncio.gather(*topic.publish_many(items))
            assert [ids[0], ids[3]] == ["orders:0:0", "orders:0:1"]
            found = {each.id: each.due async for each in ps.delays.waiting()}
            assert found.keys() == {ids[1], ids[2]}
            assert found[ids[1]] is not None, "its delay counts from the moment of storing"
            assert found[ids[2]] == FUTURE
            with pytest.raises(InvalidArgument, match=r"items\[1\]: delay: must not be negative"):
                topic.publish_many([b"a", {"data": b"b", "delay": -1}])

    asyncio.run(work())


def test_a_history_records_only_what_goes_straight_home(tmp_path: Any) -> None:
    with PubSub.in_memory(history=tmp_path, services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        ids = topic.publish_many([b"a", {"data": b"b", "delay": 600}, b"c"]).result(PATIENCE)
    assert [ids[0], ids[2]] == ["orders:0:0", "orders:0:1"]
    assert ids[1].startswith(INGEST)
    (path,) = tmp_path.iterdir()
    events = [line.split(b'"')[3] for line in path.read_bytes().splitlines()]
    assert sorted(events) == sorted([b"open", b"send", b"send", b"stored", b"stored", b"close"])
