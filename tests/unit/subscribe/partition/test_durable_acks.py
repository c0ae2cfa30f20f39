"""Acks that somebody waits for, over memory: every way to receive, and everything that can come in between.

The shell is real, threads included; the log is in memory.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kafka_pubsub import AckError, Message, PubSub, StaleAck, UnknownAck, aio
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, MemoryCluster, RequestOutcome, Step
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.stream import inline_scheduler
from kafka_pubsub.subscribe.stream.stream import Stream
from kafka_pubsub.subscription import Subscription
from tests.unit.subscribe.workers.holding import PATIENCE

MESSAGES = 40


class Faults(FaultPlan):
    """Commits and transactions that go nowhere, or whose answers are lost, as long as the test wants."""

    answer = RequestOutcome.DONE

    def __init__(self) -> None:
        #: Set when a commit has met that outcome.
        self.met = threading.Event()

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        if self.answer is not RequestOutcome.DONE:
            self.met.set()
        return self.answer

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        return self.answer


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryBackend().cluster


@pytest.fixture
def ps(cluster: MemoryCluster, faults: Faults) -> Iterator[PubSub]:
    with PubSub.in_memory(MemoryBackend(cluster=cluster, faults=faults)) as ps:
        ps.create_topic("orders", partitions=2)
        yield ps


@pytest.fixture(params=[True, False], ids=["exactly_once", "at_least_once"])
def sub(ps: PubSub, request: pytest.FixtureRequest) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True, exactly_once=request.param)


@pytest.fixture
def exact(ps: PubSub) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True, exactly_once=True)


def publish(ps: PubSub, count: int = MESSAGES) -> None:
    topic = ps.topic("orders")
    for future in [topic.publish(b"%d" % at, ordering_key=f"k{at % 7}") for at in range(count)]:
        future.result(timeout=PATIENCE)


def stored(cluster: MemoryCluster, message: Message) -> bool:
    """Whether the group's position and map call the message finished."""
    with cluster.changed:
        found = cluster.group("billing").offsets[TopicPartition("orders", message.partition)]
    offset = found.offset or 0
    told = ack_map.decode(found.metadata, offset)
    runs = () if told is None else told.runs
    return message.offset < offset or any(start <= message.offset < end for start, end in runs)


class Durable:
    """Handlers that ack, wait until that is durable, and look whether it is so."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.seen: list[bytes] = []
        self.wrong: list[BaseException | str] = []
        self.enough = threading.Event()

    def __call__(self, message: Message) -> None:
        try:
            message.ack_with_response().result(PATIENCE)
        except BaseException as error:
            self.wrong.append(error)
        self.note(message)

    def note(self, message: Message) -> None:
        if not stored(self._cluster, message):
            self.wrong.append(f"{message!r} isn't stored")
        self.seen.append(message.data)
        if len(self.seen) >= MESSAGES:
            self.enough.set()

    def batch(self, messages: list[Message]) -> None:
        for message, future in [(message, message.ack_with_response()) for message in messages]:
            future.result(PATIENCE)
            self.note(message)

    def check(self) -> None:
        assert self.enough.wait(PATIENCE), f"{len(self.seen)} of {MESSAGES}, {self.wrong}"
        assert not self.wrong
        assert sorted(self.seen) == sorted(b"%d" % at for at in range(MESSAGES)), "each exactly once"


def with_threads(sub: Subscription, durable: Durable) -> Stream:
    return sub.pull(durable)


def with_one_thread(sub: Subscription, durable: Durable) -> Stream:
    return sub.pull(durable, max_workers=1)


def with_batches(sub: Subscription, durable: Durable) -> Stream:
    return sub.pull_batch(durable.batch, max_messages=8, max_latency=0.01)


@pytest.mark.parametrize("pull", [with_threads, with_one_thread, with_batches])
def test_a_callback_that_waits_is_reported_once_the_log_knows(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, pull: Callable[[Subscription, Durable], Stream]
) -> None:
    durable = Durable(cluster)
    with pull(sub, durable):
        publish(ps)
        durable.check()
    assert sub.state().lag == 0


def test_an_executor(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    durable = Durable(cluster)
    with ThreadPoolExecutor(4) as executor, sub.pull(durable, executor=executor):
        publish(ps)
        durable.check()


def test_coroutines_await_it(ps: PubSub, cluster: MemoryCluster, exact: Subscription) -> None:
    durable = Durable(cluster)

    async def handle(message: Message) -> None:
        await message.ack_with_response()
        durable.note(message)
        with pytest.raises(StaleAck):
            await message.ack_with_response()

    async def work() -> None:
        async with (
            aio.PubSub.in_memory(MemoryBackend(cluster=cluster)) as copy,
            copy.subscription("billing").pull(handle),
        ):
            await asyncio.to_thread(publish, ps)
            await asyncio.to_thread(durable.check)

    asyncio.run(work())


def test_acks_that_nobody_waits_for_at_once_keep_their_pace(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    """Walked inline, and not taken over."""
    futures: list[tuple[Message, Future[None]]] = []
    enough = threading.Event()
    threads: set[str] = set()

    def handle(message: Message) -> None:
        threads.add(threading.current_thread().name)
        futures.append((message, message.ack_with_response()))
        if len(futures) == 200:
            enough.set()

    publish(ps, 200)
    sub.pull(lambda message: message.nack()).close()
    with sub.pull(handle):
        publish(ps, 200)
        assert enough.wait(PATIENCE)
        for message, future in futures[:200]:
            assert future.result(PATIENCE) is None
            assert stored(cluster, message)


def test_a_callback_that_the_fetcher_runs_makes_way_before_it_waits(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds up the thread that commits; here nobody else would notice."""
    monkeypatch.setattr(inline_scheduler, "LOOK", 1e9)
    durable = Durable(cluster)
    with sub.pull(durable):
        publish(ps)
        durable.check()


def test_done_callbacks_run_beside_the_stream(ps: PubSub, exact: Subscription) -> None:
    """A handler that waits for another ack holds up nobody."""
    told: list[str] = []
    both = threading.Event()
    first: list[Message] = []

    def handle(message: Message) -> None:
        if not first:
            first.append(message)
            return
        message.ack_with_response().add_done_callback(chain)

    def chain(_: Future[None]) -> None:
        told.append(threading.current_thread().name)
        first[0].ack_with_response().result(PATIENCE)
        both.set()

    with exact.pull(handle):
        topic = ps.topic("orders")
        topic.publish(b"1", ordering_key="a").result(PATIENCE)
        topic.publish(b"2", ordering_key="b").result(PATIENCE)
        assert both.wait(PATIENCE)
    assert told == ["kafka_pubsub-ack-callbacks"]


# Synchronous pull


def test_acknowledge_returns_when_all_are_durable(
    ps: PubSub, exact: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, 10)
    got: list[Message] = []
    while len(got) < 10:
        messages = exact.receive(10, timeout=PATIENCE)
        exact.acknowledge([message.ack_id for message in messages] * 2)
        assert all(stored(cluster, message) for message in messages)
        got += messages
    assert len({message.data for message in got}) == 10


def test_a_late_ack_id_is_an_error_that_names_it_and_the_others_count(
    ps: PubSub, cluster: MemoryCluster
) -> None:
    sub = ps.create_subscription("billing", "orders", exactly_once=True, ack_deadline=1)
    publish(ps, 1)
    (old,) = sub.receive(1, timeout=PATIENCE)
    (new,) = sub.receive(1, timeout=PATIENCE)  # its deadline has passed
    assert new.delivery_attempt == 2
    with pytest.raises(StaleAck, match="1 of 2 acks") as caught:
        sub.acknowledge([old.ack_id, new.ack_id, old.ack_id])
    assert caught.value.ack_ids == (old.ack_id,)
    assert stored(cluster, new)


def test_an_unknown_ack_id_is_an_error_after_the_others_were_stored(
    ps: PubSub, exact: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, 1)
    (message,) = exact.receive(1, timeout=PATIENCE)
    with pytest.raises(UnknownAck) as caught:
        exact.acknowledge(["rubbish", message.ack_id])
    assert caught.value.ack_ids == ("rubbish",)
    assert stored(cluster, message)
    assert pickle.loads(pickle.dumps(caught.value)).ack_ids == ("rubbish",)


def test_coroutines_acknowledge(ps: PubSub, cluster: MemoryCluster, exact: Subscription) -> None:
    async def work() -> None:
        async with aio.PubSub.in_memory(MemoryBackend(cluster=cluster)) as copy:
            sub = copy.subscription("billing")
            (message,) = await sub.receive(1, timeout=PATIENCE)
            await sub.acknowledge([message.ack_id])
            assert stored(cluster, message)
            with pytest.raises(StaleAck):
                await sub.acknowledge([message.ack_id])

    publish(ps, 1)
    asyncio.run(work())


# What comes in between


def test_a_refused_commit_keeps_the_waiter_and_the_next_one_settles_it(
    ps: PubSub, exact: Subscription, cluster: MemoryCluster, faults: Faults
) -> None:
    publish(ps, 1)
    (message,) = exact.receive(1, timeout=PATIENCE)
    faults.answer = RequestOutcome.REFUSED
    future = message.ack_with_response()
    assert faults.met.wait(PATIENCE)
    assert not future.done()
    assert not stored(cluster, message)
    faults.answer = RequestOutcome.DONE
    future.result(PATIENCE)
    assert stored(cluster, message)


@pytest.mark.parametrize(
    ("answer", "kind"),
    # A commit that wasn't answered may be stored: nobody can promise that the message comes again.
    [(RequestOutcome.REFUSED, AckError), (RequestOutcome.ANSWER_LOST, AckError)],
)
def test_a_stream_that_closes_without_an_answer_says_so(
    ps: PubSub, exact: Subscription, faults: Faults, answer: RequestOutcome, kind: type[AckError]
) -> None:
    futures: list[Future[None]] = []
    begun = threading.Event()

    def handle(message: Message) -> None:
        futures.append(message.ack_with_response())
        begun.set()

    with exact.pull(handle):
        faults.answer = RequestOutcome.DONE
        ps.topic("orders").publish(b"1", ordering_key="a").result(PATIENCE)
        assert begun.wait(PATIENCE)
        futures[0].result(PATIENCE)
        faults.answer = answer
        ps.topic("orders").publish(b"2", ordering_key="a").result(PATIENCE)
        assert faults.met.wait(PATIENCE)
    assert isinstance(futures[-1].exception(0), kind), "closing leaves nobody waiting"
    assert "may be delivered again" in str(futures[-1].exception(0))


def test_closing_stores_what_is_waited_for(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    acked: list[tuple[Message, Future[None]]] = []
    begun = threading.Event()

    def handle(message: Message) -> None:
        acked.append((message, message.ack_with_response()))
        begun.set()

    with sub.pull(handle):
        publish(ps, 1)
        assert begun.wait(PATIENCE)
    message, future = acked[0]
    assert future.result(0) is None
    assert stored(cluster, message)


def test_an_ack_after_the_close_is_late(ps: PubSub, exact: Subscription) -> None:
    kept: list[Message] = []
    begun = threading.Event()

    def handle(message: Message) -> None:
        kept.append(message)
        begun.set()

    with exact.pull(handle):
        publish(ps, 1)
        assert begun.wait(PATIENCE)
    assert isinstance(kept[0].ack_with_response().exception(0), StaleAck)


def test_an_ack_under_a_partition_that_went_elsewhere_counts_for_nothing_and_the_message_comes_again(
    ps: PubSub, cluster: MemoryCluster, faults: Faults
) -> None:
    sub = ps.create_subscription("billing", "orders", exactly_once=True, message_ordering=True)
    publish(ps, 1)
    (message,) = sub.receive(1, timeout=PATIENCE)
    with cluster.changed:
        group = cluster.group("billing")
        for member in list(group.members):
            group.leave(member)
        cluster.changed.notify_all()
    answer = message.ack_with_response().exception(PATIENCE)
    assert isinstance(answer, AckError)
    assert not stored(cluster, message)
    again: list[Message] = []
    while not again:
        again = sub.receive(1, timeout=PATIENCE)
    assert again[0].message_id == message.message_id
    sub.acknowledge([again[0].ack_id])
    assert stored(cluster, again[0])
