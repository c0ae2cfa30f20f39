"""The publisher over a writer that does what a test says."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest

from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.errors import (
    BrokerUnavailable,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OrderingKeyPaused,
    PublishError,
    PubSubError,
)
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.publish.many import read_items
from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
from kafka_pubsub.publish.writer_pool import NO_CHANNEL, WriterPool
from tests.unit.publish.test_future import Stored

PATIENCE = 30.0
LIMIT = 1_048_588

Report = Callable[[object, StoredRecord], None]


class Writer:
    """Keeps appended records until the test reports them; reports run in the pump's thread, as they must."""

    def __init__(self) -> None:
        self.appended: list[tuple[str, bytes | None, bytes | None, Sequence[Header] | None]] = []
        self.refusals: deque[Exception] = deque()
        self.closed = False
        self._waiting: deque[tuple[Report, StoredRecord]] = deque()
        self._due: deque[tuple[Report, StoredRecord, object]] = deque()
        self._changed = threading.Condition()

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: Report,
        partition: int = -1,
    ) -> None:
        if self.refusals:
            raise self.refusals.popleft()
        self.appended.append((topic, value, key, headers))
        self._waiting.append((on_delivery, Stored(0, key, value or b"")))

    def report(self, count: int, error: object = None) -> None:
        with self._changed:
            self._due.extend((*self._waiting.popleft(), error) for _ in range(count))
            self._changed.notify_all()

    def poll(self, timeout: float) -> int:
        with self._changed:
            if not self._due:
                self._changed.wait(timeout)
            due, self._due = self._due, deque()
        for report, record, error in due:
            report(error, record)
        return len(due)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self._waiting)

    def relearn(self, topic: str) -> int:
        return 1

    def explain(self, error: object, topic: str = "") -> PubSubError:
        return error if isinstance(error, PubSubError) else PublishError(str(error))

    def close(self) -> None:
        self.closed = True


class OpenChannel(NamedTuple):
    quick: Callable[..., None]


class World:
    """A pool of such writers and what the topic answers."""

    def __init__(self) -> None:
        self.writers: list[tuple[Batching, int, Writer]] = []
        self.answer: PublishTarget | PubSubError = PublishTarget(None, LIMIT)
        self.questions = 0
        #: What happens while a question is answered.
        self.asked: Callable[[], None] | None = None
        self.now = 0.0
        self.pool = WriterPool(self._new_writer)
        self.publisher = TopicPublisher("orders", self._target, self.pool, lambda: self.now)

    def _new_writer(self, batching: Batching, limit: int, durable: bool = True) -> Writer:
        writer = Writer()
        self.writers.append((batching, limit, writer))
        return writer

    def _target(self) -> PublishTarget:
        self.questions += 1
        if self.asked is not None:
            self.asked()
        if isinstance(self.answer, PubSubError):
            raise self.answer
        return self.answer

    @property
    def writer(self) -> Writer:
        return self.writers[-1][2]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.pool.close()


def test_a_publisher_does_nothing_before_the_first_message(world: World) -> None:
    world.publisher.flush(0)
    world.publisher.resume("K")
    assert (world.questions, world.writers) == (0, [])


def test_a_topic_that_is_changed_while_it_is_looked_up_is_looked_up_again(world: World) -> None:
    def change() -> None:
        changing = threading.Thread(target=world.publisher.look_again)
        changing.start()
        changing.join(PATIENCE)

    world.asked = change
    world.publisher.publish(b"x")
    world.asked = None
    for _ in range(3):
        world.publisher.publish(b"x")
    assert world.questions == 2


def test_a_message_reaches_the_writer_as_it_is(world: World) -> None:
    world.publisher.publish(b"", ordering_key="ä", attributes={"a": "b"})
    world.publisher.publish(b"x")
    assert world.writer.appended == [
        ("orders", b"", "ä".encode(), [("a", b"b")]),
        ("orders", b"x", None, None),
    ]
    assert world.questions == 1


def test_keys_where_ordering_is_off_are_refused_and_configure_turns_it_on(world: World) -> None:
    world.answer = PublishTarget(False, LIMIT)
    world.publisher.publish(b"x")
    with pytest.raises(
        InvalidArgument, match=r"^Message ordering must be enabled on topic to use ordering keys$"
    ):
        world.publisher.publish(b"x", ordering_key="K")
    world.publisher.configure(message_ordering=True)
    world.publisher.publish(b"x", ordering_key="K")
    world.publisher.configure(message_ordering=False)
    with pytest.raises(InvalidArgument):
        world.publisher.publish(b"x", ordering_key="K")


def test_a_changed_layout_refuses_keys_only(world: World) -> None:
    world.answer = PublishTarget(None, LIMIT, FailedPrecondition("8 partitions, not 4"))
    world.publisher.publish(b"x")
    with pytest.raises(FailedPrecondition, match="8 partitions"):
        world.publisher.publish(b"x", ordering_key="K")


def test_a_refusing_topic_is_asked_again_after_a_second_and_not_before(world: World) -> None:
    world.answer = NotFound("no such topic")
    for _ in range(5):
        with pytest.raises(NotFound, match="no such topic"):
            world.publisher.publish(b"x")
    assert world.questions == 1
    world.answer = PublishTarget(None, LIMIT)
    world.now += 1
    world.publisher.publish(b"x")
    assert world.questions == 2


def test_an_unreachable_cluster_takes_messages_with_kafkas_limits(world: World) -> None:
    world.answer = BrokerUnavailable("no broker")
    world.publisher.publish(b"x" * 1_000_000)
    with pytest.raises(InvalidArgument, match=r"max\.message\.bytes=1048588"):
        world.publisher.publish(b"x" * 1_100_000)


def test_a_message_that_waits_for_an_unreachable_cluster_says_so_when_its_time_is_up(world: World) -> None:
    world.answer = BrokerUnavailable("no broker answers at h:1 (connection refused)")
    future = world.publisher.publish(b"x")
    with pytest.raises(TimeoutError, match=r"'orders': not stored after 0 s \(no broker answers at h:1"):
        future.result(0)
    answered = [world.publisher.answered]
    with pytest.raises(DeadlineExceeded, match="connection refused"):
        world.publisher.flush(0)
    world.answer = PublishTarget(None, LIMIT)
    world.publisher.renew()
    assert [*answered, world.publisher.answered] == [False, True]
    with pytest.raises(TimeoutError, match=r"not stored after 0 s; it is sent"):
        future.result(0)


def test_a_failed_message_pauses_its_key_before_its_future_says_so(world: World) -> None:
    failed = world.publisher.publish(b"1", ordering_key="K")
    later: list[Future[str]] = []
    seen = threading.Event()

    def again(_: Future[str]) -> None:
        later.append(world.publisher.publish(b"2", ordering_key="K"))
        seen.set()

    failed.add_done_callback(again)
    world.writer.report(1, "refused")
    assert seen.wait(PATIENCE)
    error = later[0].exception(0)
    assert isinstance(error, OrderingKeyPaused)
    assert error.code == 9
    assert "'K' is paused" in error.message
    assert "refused" in error.message
    assert "topic.resume" in error.message
    assert len(world.writer.appended) == 1
    assert not world.publisher.publish(b"3", ordering_key="L").done()

    world.writer.report(1)
    world.publisher.resume("K")
    assert not world.publisher.publish(b"4", ordering_key="K").done()


def test_resume_waits_for_what_was_queued_behind_the_failure(world: World) -> None:
    first, second = (world.publisher.publish(b"x", ordering_key="K") for _ in range(2))
    world.writer.report(1, "refused")
    assert first.exception(PATIENCE)
    resumed = threading.Thread(target=world.publisher.resume, args=("K",))
    resumed.start()
    resumed.join(0.05)
    assert resumed.is_alive()
    world.writer.report(1, "refused as well")
    resumed.join(PATIENCE)
    assert second.exception(0)
    assert not world.publisher.publish(b"x", ordering_key="K").done()


def test_a_failure_without_a_key_pauses_nothing(world: World) -> None:
    failed = world.publisher.publish(b"x")
    world.writer.report(1, NotFound("gone"))
    error = failed.exception(PATIENCE)
    assert isinstance(error, PublishError)
    assert error.code == 5
    assert not world.publisher.publish(b"x").done()


def test_what_the_writer_refuses_at_once_fails_the_future_and_pauses_the_key(world: World) -> None:
    world.publisher.publish(b"x")
    world.writer.refusals.append(NotFound("gone"))
    assert isinstance(world.publisher.publish(b"x", ordering_key="K").exception(0), PublishError)
    assert isinstance(world.publisher.publish(b"x", ordering_key="K").exception(0), OrderingKeyPaused)
    world.writer.report(1)
    world.publisher.flush(PATIENCE)


def test_a_busy_writer_is_tried_again(world: World) -> None:
    world.publisher.publish(b"1", ordering_key="K")
    world.writer.refusals.extend([BufferError("busy")] * 3)
    future = world.publisher.publish(b"2", ordering_key="K")
    assert [value for _, value, _, _ in world.writer.appended] == [b"1", b"2"]
    world.writer.report(2)
    assert future.result(PATIENCE)


def test_a_key_that_was_paused_while_the_writer_was_busy_queues_nothing(world: World) -> None:
    world.publisher.publish(b"1", ordering_key="K")
    writer = world.writer

    class BusyUntilReported(BufferError):
        def __init__(self) -> None:
            writer.report(1, "refused")

    # The report comes while the second message waits for the writer.
    original, calls = writer.append, 0

    def append(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise BusyUntilReported
        if calls < 100 and not world.publisher._paused:
            raise BufferError
        original(*arguments)  # type: ignore[arg-type]

    world.publisher._reporter.append = append  # type: ignore[union-attr]
    assert isinstance(world.publisher.publish(b"2", ordering_key="K").exception(PATIENCE), OrderingKeyPaused)
    assert len(writer.appended) == 1


def test_a_flush_waits_for_what_was_published_before_it_only(world: World) -> None:
    world.publisher.publish(b"1")
    done = threading.Event()

    def flush() -> None:
        world.publisher.flush(PATIENCE)
        done.set()

    flushing = threading.Thread(target=flush)
    flushing.start()
    while not world.publisher._outstanding._older:
        flushing.join(0.001)
    world.publisher.publish(b"2")
    assert not done.is_set()
    world.writer.report(1)
    flushing.join(PATIENCE)
    assert done.is_set()
    with pytest.raises(
        DeadlineExceeded, match="1 message of topic 'orders' still waits for the broker after 0 s"
    ):
        world.publisher.flush(0)


def test_a_close_reports_what_it_waits_for_and_what_becomes_of_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (b"1", b"2"):
        world.publisher.publish(body)
    world.publisher.close(0.01)
    assert caplog.messages == [
        "close: 2 messages of topic 'orders' still wait for the broker after 0 s; what isn't stored in time fails"
    ]


def test_other_batching_waits_for_the_old_writer_and_equal_batching_shares_one(world: World) -> None:
    world.publisher.publish(b"1")
    first = world.writer
    world.publisher.configure(batching=Batching())
    world.publisher.publish(b"2")
    assert len(world.writers) == 1
    world.publisher.configure(batching=Batching(max_latency=0))
    third = threading.Thread(target=world.publisher.publish, args=(b"3",))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    first.report(2)
    third.join(PATIENCE)
    assert [value for _, value, _, _ in world.writer.appended] == [b"3"]
    assert world.writers[-1][0] == Batching(max_latency=0)

    other = TopicPublisher("other", lambda: PublishTarget(None, LIMIT), world.pool)
    other.publish(b"x")
    assert len(world.writers) == 2
    smaller = TopicPublisher("smaller", lambda: PublishTarget(None, LIMIT - 1), world.pool)
    smaller.publish(b"x")
    assert [limit for _, limit, _ in world.writers] == [LIMIT, LIMIT, LIMIT - 1]


def test_a_closed_publisher_takes_nothing_and_waits_for_the_rest(world: World) -> None:
    future = world.publisher.publish(b"x")
    closing = threading.Thread(target=world.publisher.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    world.writer.report(1)
    closing.join(PATIENCE)
    assert future.done()
    with pytest.raises(FailedPrecondition, match="has been closed"):
        world.publisher.publish(b"x")
    world.publisher.close()
    world.pool.close()
    assert world.writer.closed


def test_many_threads_keep_their_own_order(world: World) -> None:
    world.publisher.configure(flow=PublishFlow(max_messages=64))
    threads, each = 8, 500
    running = threading.Event()

    def work(number: int) -> None:
        for count in range(each):
            world.publisher.publish(b"%d" % count, ordering_key=f"key-{number}")

    def answer() -> None:
        while not running.is_set():
            world.writer.report(len(world.writer._waiting))
            running.wait(0.0005)

    world.publisher.publish(b"first")
    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    answering = threading.Thread(target=answer)
    for thread in [answering, *workers]:
        thread.start()
    for thread in workers:
        thread.join(PATIENCE)
    world.publisher.flush(PATIENCE)
    running.set()
    answering.join()
    for number in range(threads):
        of_key = [
            int(value or b"") for _, value, key, _ in world.writer.appended if key == b"key-%d" % number
        ]
        assert of_key == list(range(each))


@pytest.mark.parametrize("way", ["append", "quick", "many"])
def test_a_flush_after_ctrl_c_waits_for_each_message_that_was_published_before_it(
    world: World, way: str
) -> None:
    """A report of a message that isn't counted ends the flush a single message early."""
    world.publisher.publish(b"1")
    writer = world.writer

    def quick(topic: str, data: bytes, key: bytes | None, partition: int, report: Report, *_: object) -> None:
        writer.append(topic, data, key, None, report)
        raise KeyboardInterrupt  # as after a call in C, which is the first moment for a signal

    def append(*arguments: Any) -> None:
        Writer.append(writer, *arguments)
        signal.raise_signal(signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if way == "append":
            world.publisher._last_reporter.append = append  # type: ignore[union-attr]
        else:
            world.publisher._channel = OpenChannel(quick)
        some: dict[str, Callable[[], object]] = {
            "append": lambda: world.publisher.publish(b"2"),
            "quick": lambda: world.publisher.publish(b"2"),
            "many": lambda: world.publisher.publish_many(read_items([b"2", b"not yet"])),
        }
        with pytest.raises(KeyboardInterrupt):
            some[way]()
    finally:
        signal.signal(signal.SIGINT, old)
    world.publisher._last_reporter.append = writer.append  # type: ignore[union-attr]
    world.publisher._channel = NO_CHANNEL
    third = world.publisher.publish(b"3")
    assert [each[1] for each in writer.appended] == [b"1", b"2", b"3"]
    writer.report(2)
    with pytest.raises(DeadlineExceeded):
        world.publisher.flush(0.05)
    writer.report(1)
    world.publisher.flush(PATIENCE)
    assert third.done()
