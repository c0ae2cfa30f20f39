"""`publish_many`: checked as a whole, queued in order, with futures that are made when they are looked at."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from typing import Any

import pytest

from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OrderingKeyPaused,
    PublishError,
    ResourceExhausted,
)
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.publish.many import RUN, PublishFutures, PublishItem, Report, read_items
from kafka_pubsub.publish.publisher import PublishTarget
from tests.unit.publish.test_future import Owner, Stored
from tests.unit.publish.test_publisher import LIMIT, PATIENCE, World, Writer


class QuickWriter(Writer):
    """A writer with a quick way, which may be closed after so many messages."""

    def __init__(self) -> None:
        super().__init__()
        self.quick_calls = 0
        # How many more the quick way takes before a refusal. None: it takes all.
        self.quick_left: int | None = None
        self.open = True

    def channel(self, topic: str) -> QuickWriter:
        return self

    @property
    def quick(self) -> Callable[..., None] | None:
        return self._quick if self.open else None

    def _quick(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        report: Callable[[object, StoredRecord], None],
        other: None = None,
        timestamp: int = 0,
        headers: Sequence[Header] | None = None,
    ) -> None:
        if self.quick_left is not None:
            if not self.quick_left:
                raise BufferError("full")
            self.quick_left -= 1
        self.quick_calls += 1
        self.append(topic, value, key, headers, report)


class QuickWorld(World):
    def _new_writer(self, batching: Batching, limit: int, durable: bool = True) -> Writer:
        self.quick_writer = QuickWriter()
        self.writers.append((batching, limit, self.quick_writer))
        return self.quick_writer


@pytest.fixture(params=[World, QuickWorld])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world: World = request.param()
    yield world
    world.pool.close()


@pytest.fixture
def quick() -> Iterator[QuickWorld]:
    world = QuickWorld()
    yield world
    world.pool.close()


def publish_many(world: World, items: Iterable[bytes | PublishItem]) -> PublishFutures:
    return world.publisher.publish_many(read_items(items))


def bodies(world: World) -> list[bytes | None]:
    return [value for _, value, _, _ in world.writer.appended]


def test_items_are_queued_in_their_order_as_they_are(world: World) -> None:
    futures = publish_many(
        world,
        [
            b"alone",
            {"data": b"keyed", "ordering_key": "k"},
            {"data": b"with", "ordering_key": "ü", "attributes": {"kind": "made"}},
            {"data": b"nothing else", "ordering_key": None, "attributes": None},
        ],
    )
    assert world.writer.appended == [
        ("orders", b"alone", None, None),
        ("orders", b"keyed", b"k", None),
        ("orders", b"with", "ü".encode(), [("kind", b"made")]),
        ("orders", b"nothing else", None, None),
    ]
    world.writer.report(4)
    assert futures.result(PATIENCE) == ["orders:3:0"] * 4
    assert [future.result(PATIENCE) for future in futures] == ["orders:3:0"] * 4


def test_any_iterable_is_taken_and_none_of_it_is_lost_between_two_runs(world: World) -> None:
    count = 3 * RUN + 7
    futures = publish_many(world, ({"data": b"%d" % n, "ordering_key": "k"} for n in range(count)))
    assert bodies(world) == [b"%d" % n for n in range(count)]
    assert len(futures) == count
    world.writer.report(count)
    assert len(futures.result(PATIENCE)) == count
    world.publisher.flush(PATIENCE)


def test_nothing_is_asked_for_nothing(world: World) -> None:
    assert publish_many(world, []).result(0) == []
    assert world.questions == 0


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("text", r"items\[2\]: data must be bytes, not str"),
        (None, r"items\[2\] must be bytes or a mapping .*, not NoneType"),
        ((b"data", "key"), r"items\[2\] must be bytes or a mapping .*, not tuple"),
        ({"ordering_key": "k"}, r"items\[2\] has no 'data'"),
        ({"data": 7}, r"items\[2\]: data must be bytes, not int"),
        ({"data": b"x", "key": "k"}, r"items\[2\] has 'key', which is no argument of publish"),
        ({"data": b"x", "ordering_key": ""}, r"items\[2\]: Ordering key cannot be empty"),
        ({"data": b"x", "ordering_key": "k" * 1025}, r"items\[2\]: Ordering key exceeds"),
        ({"data": b"x", "ordering_key": "\ud800"}, r"items\[2\]: ordering_key can't be encoded"),
        ({"data": b"x", "ordering_key": 1}, r"items\[2\]: ordering_key must be a string"),
        ({"data": b"x", "attributes": {"ps-x": "y"}}, r"items\[2\]: attributes: the name 'ps-x'"),
        ({"data": bytes(LIMIT)}, r"items\[2\]: message of \d+ bytes .* exceeds the limit"),
    ],
)
def test_a_wrong_item_is_named_and_nothing_is_sent(world: World, item: Any, text: str) -> None:
    world.publisher.publish(b"before")
    with pytest.raises(InvalidArgument, match=text):
        publish_many(world, [b"a", {"data": b"b", "ordering_key": "k"}, item, b"c"])
    assert bodies(world) == [b"before"]


@pytest.mark.parametrize("items", [b"one body", "text", {"data": b"one item"}, 7])
def test_one_message_is_not_many(world: World, items: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"items must be an iterable of messages, not \w+: "):
        publish_many(world, items)


def test_items_whose_iterator_fails_are_not_sent(world: World) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        publish_many(world, broken())
    assert not world.writers


def test_a_topic_that_refuses_raises_before_anything_is_sent(world: World) -> None:
    world.answer = NotFound("there is no topic 'orders'")
    with pytest.raises(NotFound):
        publish_many(world, [b"a"])
    world.now = 2.0
    world.answer = PublishTarget(False, LIMIT)
    for _ in range(2):  # looked at, then known
        with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
            publish_many(world, [b"a", {"data": b"b", "ordering_key": "k"}])
    assert not world.writers


def test_the_items_of_a_paused_key_fail_and_those_of_others_go_on(world: World) -> None:
    failed = world.publisher.publish(b"first", "k")
    world.writer.report(1, PublishError("refused"))
    with pytest.raises(PublishError):
        failed.result(PATIENCE)
    futures = publish_many(
        world, [{"data": b"no", "ordering_key": "k"}, b"yes", {"data": b"neither", "ordering_key": "k"}]
    )
    assert bodies(world) == [b"first", b"yes"]
    world.writer.report(1)
    assert futures[1].result(PATIENCE) == "orders:3:0"
    for index in (0, 2):
        with pytest.raises(OrderingKeyPaused):
            futures[index].result(PATIENCE)
    with pytest.raises(OrderingKeyPaused):
        futures.result(PATIENCE)
    world.publisher.resume("k")
    publish_many(world, [{"data": b"again", "ordering_key": "k"}])
    assert bodies(world)[-1] == b"again"


def test_an_item_that_fails_pauses_its_key_and_fails_only_its_future(world: World) -> None:
    futures = publish_many(world, [{"data": b"a", "ordering_key": "k"}, b"b"])
    world.writer.report(1, PublishError("refused"))
    with pytest.raises(PublishError, match="refused"):
        futures[0].result(PATIENCE)
    with pytest.raises(OrderingKeyPaused):
        world.publisher.publish(b"c", "k").result(PATIENCE)
    world.writer.report(1)
    assert futures[1].result(PATIENCE) == "orders:3:0"


def test_without_room_all_the_rest_fails_if_the_flow_says_so(world: World) -> None:
    world.publisher.configure(flow=PublishFlow(max_messages=2, on_limit="error"))
    futures = publish_many(world, [b"a", b"b", b"c", b"d"])
    assert bodies(world) == [b"a", b"b"]
    world.writer.report(2)
    assert [future.exception(PATIENCE) is None for future in futures] == [True, True, False, False]
    for future in futures[2:]:
        with pytest.raises(ResourceExhausted):
            future.result(PATIENCE)


def test_a_lower_limit_holds_for_the_next_call(quick: QuickWorld) -> None:
    publish_many(quick, [b"x"] * 3)
    quick.publisher.configure(flow=PublishFlow(max_messages=4, on_limit="error"))
    futures = publish_many(quick, [b"y"] * 9)
    assert len(bodies(quick)) == 4
    assert [future.done() for future in futures] == [False] + [True] * 8


@pytest.mark.parametrize("flow", [PublishFlow(max_messages=3), PublishFlow(max_bytes=3)])
def test_it_waits_for_room(world: World, flow: PublishFlow) -> None:
    world.publisher.configure(flow=flow)
    world.publisher.publish(b"0")
    through: list[Sequence[object]] = []
    thread = threading.Thread(target=lambda: through.append(publish_many(world, [b"1", b"2", b"3", b"4"])))
    thread.start()
    for count in (3, 4, 5):
        _until(lambda: len(world.writer.appended) >= count)  # noqa: B023 - it ends before the next round
        assert len(world.writer.appended) == count
        world.writer.report(1)
    thread.join(PATIENCE)
    assert bodies(world) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(through[0]) == 4


def _until(true: Callable[[], bool]) -> None:
    ticking = threading.Event()
    for _ in range(int(PATIENCE * 200)):
        if true():
            return
        ticking.wait(0.005)
    raise AssertionError("it never came")


def test_a_quick_way_that_refuses_is_followed_by_the_careful_one(quick: QuickWorld) -> None:
    quick.publisher.publish(b"0")
    quick.quick_writer.quick_left = 5
    items = [b"%d" % n for n in range(1, 9)]
    futures = publish_many(quick, items)
    assert bodies(quick) == [b"0", *items]
    assert quick.quick_writer.quick_calls == 5
    quick.quick_writer.report(9)
    assert len(futures.result(PATIENCE)) == 8
    quick.publisher.flush(PATIENCE)


def test_attributes_take_the_quick_way_too(quick: QuickWorld) -> None:
    quick.publisher.publish(b"0")
    publish_many(quick, [{"data": b"1", "attributes": {"a": "b"}}])
    quick.publisher.publish(b"2", None, {"c": "d"})
    assert quick.quick_writer.quick_calls == 2
    assert [headers for _, _, _, headers in quick.writer.appended] == [None, [("a", b"b")], [("c", b"d")]]


def test_a_closed_publisher_takes_none(world: World) -> None:
    world.publisher.publish(b"a")
    world.writer.report(1)
    world.publisher.close(PATIENCE)
    with pytest.raises(FailedPrecondition, match="has been closed"):
        publish_many(world, [b"b"])


def test_a_future_is_the_same_each_time_and_made_only_for_those_who_look(world: World) -> None:
    futures = publish_many(world, [b"a", b"b", b"c"])
    first = futures[0]
    assert futures[0] is first
    assert futures[-1] is futures[2]
    assert not first.done()
    world.writer.report(2)
    done, left = wait(futures, PATIENCE, FIRST_COMPLETED)
    assert first in done | left
    world.writer.report(1)
    assert set(as_completed(futures, PATIENCE)) == set(futures)
    assert futures[1:] == [futures[1], futures[2]]
    with pytest.raises(IndexError):
        futures[3]


def test_waiting_in_vain_says_what_it_waits_for(world: World) -> None:
    futures = publish_many(world, [b"a"])
    with pytest.raises(TimeoutError, match=r"topic 'orders': not stored after 0\.01 s"):
        futures.result(0.01)
    called: list[object] = []
    futures[0].add_done_callback(called.append)
    world.writer.report(1)
    _until(lambda: bool(called))
    assert called == [futures[0]]


def test_flush_waits_for_all_of_it(world: World) -> None:
    futures = publish_many(world, [b"x"] * (RUN + 1))
    world.writer.report(RUN + 1)
    world.publisher.flush(PATIENCE)
    assert all(future.done() for future in futures)


def test_a_report_serves_another_message_once_it_was_called(quick: QuickWorld) -> None:
    quick.publisher.publish(b"before")
    reports: list[Report] = []

    class Channel:
        def quick(self, topic: str, value: bytes, key: object, to: int, report: Report, *_: object) -> None:
            reports.append(report)
            if len(reports) >= 3:  # two stay on their way
                reports[-2](None, Stored(int(value) - 1))

    channel: Any = Channel()
    quick.publisher._channel = channel
    futures = publish_many(quick, (b"%d" % n for n in range(2 * RUN)))
    assert len(set(map(id, reports))) == 3
    reports[0](None, Stored(0))
    reports[-1](None, Stored(2 * RUN - 1))
    assert futures.result(PATIENCE) == [f"orders:3:{n}" for n in range(2 * RUN)]
    assert futures.spare is None


def test_threads_keep_their_order_beside_it(quick: QuickWorld) -> None:
    quick.publisher.configure(flow=PublishFlow(on_limit="ignore"))
    quick.publisher.publish(b"0")

    def many(name: str) -> None:
        for part in range(4):
            publish_many(quick, (b"%s-%d" % (name.encode(), part * RUN + n) for n in range(RUN)))

    threads = [threading.Thread(target=many, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for name in (b"a", b"b"):
        mine = [body for body in bodies(quick) if body and body.startswith(name)]
        assert mine == [b"%s-%d" % (name, n) for n in range(4 * RUN)]


@pytest.mark.parametrize("kind", ["result", "callback"])
def test_a_future_that_is_made_while_its_report_comes_always_resolves(kind: str) -> None:
    owner, rounds = Owner(), 1000
    futures = PublishFutures(owner.outstanding.current, rounds)
    step = threading.Barrier(3, timeout=PATIENCE)
    ids: list[list[str]] = [[], []]

    def ask(mine: list[str]) -> None:
        for number in range(rounds):
            step.wait()
            if kind == "callback":
                called = threading.Event()
                futures[number].add_done_callback(lambda _: called.set())  # noqa: B023 - waited for in this round
                assert called.wait(PATIENCE)
            mine.append(futures[number].result(PATIENCE))

    threads = [threading.Thread(target=ask, args=(mine,)) for mine in ids]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(rounds):
            step.wait()
            Report(owner.outstanding.current, futures, number)(None, Stored(number))
        for thread in threads:
            thread.join(PATIENCE)
    finally:
        sys.setswitchinterval(usual)
        owner.callbacks.close(PATIENCE)
    assert ids == [[f"orders:3:{number}" for number in range(rounds)]] * 2
