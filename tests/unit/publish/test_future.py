"""The publish future is a future like any other, and stays right when waiting begins while the report comes."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, as_completed, wait
from queue import Queue

import pytest

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import PublishError, PubSubError
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.publish.flow_control import Epoch, Outstanding
from kafka_pubsub.publish.future import CallbackThread, PublishFuture
from tests.support import until

# Seconds; only a hanging test needs them.
PATIENCE = 30.0


class Stored:
    """What a report says of a stored message."""

    def __init__(self, offset: int | None, key: bytes | None = None, value: bytes = b"x") -> None:
        self._offset, self._key, self._value = offset, key, value

    def topic(self) -> str | None:
        return "orders"

    def partition(self) -> int | None:
        return 3

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[Header] | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0)

    def leader_epoch(self) -> int | None:
        return None

    def __len__(self) -> int:
        return len(self._value)


class Owner:
    """The publisher's part in a report."""

    def __init__(self) -> None:
        self.name = "orders"
        self.callbacks = CallbackThread()
        self.lock = threading.Lock()
        self.outstanding = Outstanding(self, self.lock, PublishFlow())

    def failed(self, key: bytes | None, error: object) -> PubSubError:
        return PublishError(f"{key!r}: {error}")

    def waits(self, seconds: float | None) -> str:
        return f"not stored after {seconds} s"

    def future(self) -> PublishFuture:
        epoch = self.outstanding.current
        epoch.sent_messages += 1
        epoch.sent_bytes += 1
        return PublishFuture(epoch)


@pytest.fixture
def owner() -> Owner:
    return Owner()


def test_it_resolves_to_the_message_id(owner: Owner) -> None:
    future = owner.future()
    assert not future.done()
    future(None, Stored(7))
    assert future.done()
    assert future.result() == "orders:3:7"
    assert future.exception() is None


def test_offset_0_is_an_id_too(owner: Owner) -> None:
    future = owner.future()
    future(None, Stored(0))
    assert future.result(0) == "orders:3:0"


def test_a_place_that_nobody_reported_is_no_other_messages(owner: Owner) -> None:
    """The broker knew the batch, which was sent again, and answers "duplicate" without an offset."""
    future = owner.future()
    future(None, Stored(None))
    assert future.done()
    assert future.result(0) == "orders:3:unknown"
    assert future.exception() is None


def test_a_failure_is_raised_as_the_publisher_explains_it(owner: Owner) -> None:
    future = owner.future()
    future("refused", Stored(0, b"K"))
    with pytest.raises(PublishError, match="b'K': refused"):
        future.result()
    assert isinstance(pickle.loads(pickle.dumps(future.exception())), PublishError)


def test_waiting_in_vain_is_a_timeout(owner: Owner) -> None:
    with pytest.raises(TimeoutError):
        owner.future().result(timeout=0)
    with pytest.raises(TimeoutError):
        owner.future().exception(timeout=0.001)


def test_it_cannot_be_cancelled_nor_resolved_from_outside(owner: Owner) -> None:
    future = owner.future()
    assert not future.cancel()
    assert not future.cancelled()
    assert future.running()
    with pytest.raises(InvalidStateError):
        future.set_result("mine")
    with pytest.raises(InvalidStateError):
        future.set_exception(ValueError())
    future(None, Stored(1))
    assert not future.cancel()
    assert future.result() == "orders:3:1"


def test_it_costs_no_condition_until_somebody_asks(owner: Owner) -> None:
    future = owner.future()
    future(None, Stored(1))
    assert future.result() == "orders:3:1"
    assert future._waiting is None
    assert not vars(future)


def test_wait_and_as_completed(owner: Owner) -> None:
    reports = [owner.future() for _ in range(10)]
    futures: list[Future[str]] = list(reports)
    reports[0](None, Stored(0))
    assert wait(futures, timeout=0).done == {futures[0]}

    def report_the_rest() -> None:
        for report in reports[1:]:
            report(None, Stored(1))

    threading.Timer(0.01, report_the_rest).start()
    assert len(wait(futures, timeout=PATIENCE, return_when=FIRST_COMPLETED).done) >= 1
    assert set(as_completed(futures, timeout=PATIENCE)) == set(futures)


@pytest.mark.parametrize("error", [RuntimeError("a user's mistake"), SystemExit(1)])
def test_callbacks_run_elsewhere_in_order_and_one_that_raises_harms_nobody(
    owner: Owner, error: BaseException
) -> None:
    future, seen, ended = owner.future(), list[object](), threading.Event()

    def raises(_: Future[str]) -> None:
        raise error

    future.add_done_callback(lambda done: seen.append(threading.current_thread()))
    future.add_done_callback(raises)
    future.add_done_callback(lambda done: seen.append(done.result()))
    future.add_done_callback(lambda _: ended.set())
    future(None, Stored(4))
    assert ended.wait(PATIENCE)
    assert seen[1:] == ["orders:3:4"]
    assert seen[0] is not threading.current_thread()
    future.add_done_callback(lambda done: seen.append("late"))
    assert seen[-1] == "late"
    assert owner.callbacks.close(PATIENCE)


def test_asyncio_awaits_it(owner: Owner) -> None:
    async def publish() -> str:
        future = owner.future()
        wrapped = asyncio.wrap_future(future)
        threading.Timer(0.01, future, [None, Stored(9)]).start()
        return await asyncio.wait_for(wrapped, PATIENCE)

    assert asyncio.run(publish()) == "orders:3:9"


def test_a_cancelled_await_leaves_the_message_on_its_way(owner: Owner) -> None:
    future = owner.future()

    async def publish() -> None:
        wrapped = asyncio.wrap_future(future)
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped

    asyncio.run(publish())
    future(None, Stored(2))
    assert future.result() == "orders:3:2"


def test_a_report_is_counted_after_the_future_has_resolved(owner: Owner) -> None:
    future = owner.future()
    future(None, Stored(2))
    assert owner.outstanding.current.over


def _by_result(future: Future[str]) -> None:
    future.result(PATIENCE)


def _by_exception(future: Future[str]) -> None:
    future.exception(PATIENCE)


def _by_wait(future: Future[str]) -> None:
    assert not wait([future], PATIENCE).not_done


def _by_as_completed(future: Future[str]) -> None:
    assert next(iter(as_completed([future], PATIENCE))) is future


def _by_callback(future: Future[str]) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(PATIENCE)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can, so that races meet in the middle of a line."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("wait_for", [_by_result, _by_exception, _by_wait, _by_as_completed, _by_callback])
def test_waiting_that_begins_while_the_report_comes_always_ends(
    owner: Owner, wait_for: Callable[[Future[str]], None]
) -> None:
    rounds, waiters = 1000, 3
    futures = [owner.future() for _ in range(rounds)]
    # All sides step through the rounds together, so that each round is a race.
    step = threading.Barrier(waiters + 1, timeout=PATIENCE)
    ended = [0] * waiters

    def waiter(number: int) -> None:
        for future in futures:
            step.wait()
            wait_for(future)
            ended[number] += 1

    threads = [threading.Thread(target=waiter, args=(number,)) for number in range(waiters)]
    for thread in threads:
        thread.start()
    for number, future in enumerate(futures):
        step.wait()
        future(None, Stored(number))
    for thread in threads:
        thread.join(PATIENCE)
    assert ended == [rounds] * waiters
    assert owner.outstanding.current.over
    owner.callbacks.close(PATIENCE)


class Looks(Outstanding):
    """Counts how often reports look at all counters."""

    __slots__ = ("count",)

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner, owner.lock, PublishFlow())
        self.count = 0

    def wake(self, epoch: Epoch, record: StoredRecord) -> None:
        self.count += 1
        super().wake(epoch, record)


def _until_waiting(outstanding: Outstanding) -> None:
    until(lambda: outstanding._waiting, "a waiting thread")


def test_while_a_flush_waits_few_reports_look_and_the_last_one_ends_it(owner: Owner) -> None:
    owner.outstanding = looks = Looks(owner)
    futures = [owner.future() for _ in range(6400)]
    ended: list[bool] = []

    def flush() -> None:
        with owner.lock:
            ended.append(looks.wait_over(PATIENCE))

    thread = threading.Thread(target=flush)
    thread.start()
    _until_waiting(looks)
    for future in futures[:-1]:
        future(None, Stored(1))
    assert not ended
    futures[-1](None, Stored(1))
    thread.join(PATIENCE)
    assert ended == [True]
    assert looks.count < 200


def test_a_report_in_between_lets_a_publisher_go_on_once_a_quarter_is_free(owner: Owner) -> None:
    owner.outstanding.limit(PublishFlow(max_messages=1000))
    futures = [owner.future() for _ in range(1000)]
    ended = threading.Event()

    def publish() -> None:
        with owner.lock:
            owner.outstanding.make_room(1)
        ended.set()

    thread = threading.Thread(target=publish)
    thread.start()
    _until_waiting(owner.outstanding)
    for future in futures[:200]:
        future(None, Stored(1))
    assert not ended.is_set()
    for future in futures[200:320]:
        future(None, Stored(1))
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("most", [1, 3, 100])
def test_no_wake_up_is_lost_between_publishers_a_flush_and_reports(owner: Owner, most: int) -> None:
    """A lost report would stop a publisher or the flush for ever."""
    owner.outstanding.limit(PublishFlow(max_messages=most))
    queued: Queue[PublishFuture | None] = Queue()

    def publish() -> None:
        for _ in range(300):
            with owner.lock:
                owner.outstanding.make_room(1)
                queued.put(owner.future())

    def flush() -> None:
        for _ in range(30):
            with owner.lock:
                assert owner.outstanding.wait_over(PATIENCE)

    def report() -> None:
        while (future := queued.get()) is not None:
            future(None, Stored(1))

    threads = [threading.Thread(target=each, daemon=True) for each in (publish, publish, flush)]
    reporter = threading.Thread(target=report, daemon=True)
    for thread in (*threads, reporter):
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    queued.put(None)
    reporter.join(PATIENCE)
    assert owner.outstanding.messages == 0
