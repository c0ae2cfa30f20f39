"""The asyncio version over memory: the same behaviour, without ever blocking the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import pytest

import kafka_pubsub
from kafka_pubsub import (
    Batching,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PublishFlow,
    ResourceExhausted,
    RetryPolicy,
    aio,
)
from kafka_pubsub.aio.publish_queue import PublishLine
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.subscriber import Subscriber
from tests.support import parameters

SECONDS = 20


def run(work: Callable[[aio.PubSub], Awaitable[None]]) -> None:
    """Runs the work on a new loop with a new cluster in memory."""

    async def main() -> None:
        async with asyncio.timeout(60), aio.PubSub.in_memory() as ps:
            await work(ps)

    asyncio.run(main())


async def ordered(ps: aio.PubSub) -> tuple[aio.Topic, aio.Subscription]:
    topic = await ps.create_topic("orders", partitions=3, message_ordering=True)
    return topic, await ps.create_subscription("billing", topic, message_ordering=True)


# -- the surface -----------------------------------------------------------------------------------------------

#: Sync method -> the arguments that the asyncio version leaves out, because a loop takes their place.
LEFT_OUT = {"executor"}


@pytest.mark.parametrize("name", ["PubSub", "Topic", "Subscription", "Stream"])
def test_each_class_has_an_asyncio_version_with_the_same_methods(name: str) -> None:
    sync, copy = getattr(kafka_pubsub, name), getattr(aio, name)
    only_sync = {"add_done_callback", "remove_done_callback"}
    for member, method in vars(sync).items():
        if member.startswith("_") or member in only_sync or not inspect.isfunction(method):
            continue
        assert parameters(getattr(copy, member)) == parameters(method) - LEFT_OUT, member


def test_an_unknown_name_gives_the_usual_error() -> None:
    module: Any = aio
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = module.nothing_of_that_name
    assert set(aio.__all__) <= set(dir(aio))


# -- management ------------------------------------------------------------------------------------------------


def test_management_is_the_same() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic = await ps.create_topic("orders", partitions=3, labels={"a": "b"})
        assert (topic.name, (await topic.options()).partitions) == ("orders", 3)
        assert (await (await ps.update_topic("orders", retention=60)).options()).retention == 60
        sub = await ps.create_subscription("billing", "orders", retry=RetryPolicy())
        assert (sub.name, await sub.topic(), (await sub.options()).retry) == (
            "billing",
            "orders",
            RetryPolicy(),
        )
        assert (await (await ps.update_subscription("billing", retry=None)).options()).retry is None
        assert [each.name for each in await ps.list_topics()] == ["orders"]
        assert [each.name for each in await ps.list_subscriptions()] == ["billing"]
        state = await sub.state(limit=0)
        assert (state.lag, state.backlog) == (0, 0)
        await sub.delete()
        await topic.delete()
        assert await ps.list_topics() == []
        with pytest.raises(NotFound):
            await ps.delete_subscription("billing")
        with pytest.raises(NotFound):
            await ps.adopt_topic("old")

    run(work)


def test_a_closed_one_says_so() -> None:
    async def main() -> None:
        async with aio.PubSub.in_memory() as ps:
            topic = await ps.create_topic("orders")
        await ps.close()
        with pytest.raises(FailedPrecondition, match="closed"):
            await ps.list_topics()
        with pytest.raises(FailedPrecondition, match="closed"):
            await topic.publish(b"x")

    asyncio.run(main())


# -- publishing ------------------------------------------------------------------------------------------------


def test_many_messages_are_on_their_way_and_a_key_keeps_its_order_from_the_first_one() -> None:
    async def work(ps: aio.PubSub) -> None:
        await ps.create_topic("orders")
        # The first ones wait in line for the topic to be looked up; two handles share the line.
        handles = [ps.topic("orders"), ps.topic("orders")]
        futures = [handles[number % 2].publish(b"%d" % number, ordering_key="k") for number in range(500)]
        offsets = [int(each.rpartition(":")[2]) for each in await asyncio.gather(*futures)]
        assert offsets == list(range(500))

    run(work)


def test_wrong_arguments_and_missing_topics_are_errors_of_the_awaited_publish() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic = await ps.create_topic("orders", message_ordering=False)
        for _ in range(2):  # looked up by a thread, then known
            with pytest.raises(InvalidArgument, match="Ordering key cannot be empty"):
                await topic.publish(b"x", ordering_key="")
            with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
                await topic.publish(b"x", ordering_key="k")
            assert await topic.publish_json({"a": 1})
        with pytest.raises(InvalidArgument, match="JSON"):
            topic.publish_json(object())
        with pytest.raises(NotFound, match="topic 'nowhere' not found"):
            await ps.topic("nowhere").publish(b"x")
        with pytest.raises(InvalidArgument, match="delay: must not be negative"):
            await topic.publish(b"x", delay=-1)

    run(work)


def test_many_messages_of_one_call_keep_their_order_behind_what_waits_in_line() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic = await ps.create_topic("orders", partitions=1)
        first = topic.publish(b"first", ordering_key="k")
        futures = topic.publish_many({"data": b"%d" % n, "ordering_key": "k"} for n in range(100))
        offsets = [int(each.rpartition(":")[2]) for each in await asyncio.gather(first, *futures)]
        assert offsets == list(range(101))
        with pytest.raises(InvalidArgument, match=r"items\[1\] must be bytes or a mapping"):
            topic.publish_many([b"a", 7])  # type: ignore[list-item]
        assert (await topic.publish(b"last")).endswith(":101")

    run(work)


class Askers(FaultPlan):
    """Notes which threads ask the cluster."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def request(self, operation: str, name: str) -> None:
        self.threads.add(threading.get_ident())


@pytest.mark.parametrize("many", [False, True])
def test_the_first_delayed_message_does_not_block_the_loop(many: bool) -> None:
    askers = Askers()

    async def main() -> None:
        async with asyncio.timeout(SECONDS), aio.PubSub.in_memory(MemoryBackend(faults=askers)) as ps:
            topic = await ps.create_topic("orders")
            await topic.publish(b"x")
            if many:
                await asyncio.gather(*topic.publish_many([b"y", {"data": b"x", "delay": 600}]))
            else:
                await topic.publish(b"x", delay=600)

    asyncio.run(main())
    assert askers.threads
    assert threading.get_ident() not in askers.threads


def test_a_full_publisher_does_not_block_the_loop() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic = await ps.create_topic("orders")
        await topic.configure(flow=PublishFlow(max_messages=1), batching=Batching(max_latency=0))
        futures = [topic.publish(b"%d" % number, ordering_key="k") for number in range(50)]
        await topic.flush(timeout=SECONDS)
        assert all(future.done() for future in futures) or len(await asyncio.gather(*futures)) == 50
        await topic.resume("k")

    run(work)


def test_closing_publishes_what_waits_in_line() -> None:
    async def main() -> list[str]:
        async with aio.PubSub.in_memory() as ps:
            topic = await ps.create_topic("orders")
            futures = [topic.publish(b"x") for _ in range(100)]
        return await asyncio.gather(*futures)

    assert len(asyncio.run(main())) == 100


class Gate:
    """Publishes nothing before it is opened; notes the order."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.sent: list[int] = []

    def send(self, number: int) -> Callable[[], Future[str]]:
        def publish() -> Future[str]:
            assert self.open.wait(SECONDS)
            self.sent.append(number)
            done: Future[str] = Future()
            if number == 3:
                raise InvalidArgument("the third is wrong")
            done.set_result(str(number))
            return done

        return publish


def test_nothing_overtakes_a_line_and_errors_reach_their_own_future() -> None:
    gate, line = Gate(), PublishLine()
    futures = [line.publish(gate.send(number), would_block=number == 0) for number in range(6)]
    assert not any(future.cancel() for future in futures)
    gate.open.set()
    assert line.wait(SECONDS)
    assert gate.sent == list(range(6))
    with pytest.raises(InvalidArgument, match="the third is wrong"):
        futures.pop(3).result(SECONDS)
    assert [future.result(SECONDS) for future in futures] == ["0", "1", "2", "4", "5"]


def test_without_a_line_a_message_is_sent_at_once_on_the_callers_thread() -> None:
    line, threads = PublishLine(), list[str]()

    def send() -> Future[str]:
        threads.append(threading.current_thread().name)
        return Future()

    line.publish(send, would_block=False)
    assert threads == [threading.current_thread().name]
    assert line.wait(0)


def test_a_line_is_bounded() -> None:
    gate, line = Gate(), PublishLine(limit=2)
    line.publish(gate.send(0), would_block=True)
    with pytest.raises(ResourceExhausted, match="2 messages wait to be published"):  # noqa: PT012
        # The thread has taken the first message out of the line, or is about to: one of these is too many.
        for number in (1, 2, 4, 5):
            line.publish(gate.send(number), would_block=True)
    assert not line.wait(0)
    gate.open.set()
    assert line.wait(SECONDS)


# -- receiving -------------------------------------------------------------------------------------------------


def test_coroutines_receive_each_key_in_order_and_keys_at_the_same_time() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        seen: dict[str, list[int]] = {}
        running = most = 0
        done = asyncio.Event()

        async def handle(message: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            seen.setdefault(message.ordering_key or "", []).append(int(message.data))
            message.ack()
            running -= 1
            if sum(map(len, seen.values())) == 100:
                done.set()

        loop_thread = threading.current_thread()

        async def on_the_loop(message: Message) -> None:
            assert threading.current_thread() is loop_thread
            await handle(message)

        async with sub.pull(on_the_loop) as stream:
            futures = [topic.publish(b"%d" % n, ordering_key=f"k{n % 5}") for n in range(100)]
            await asyncio.gather(*futures)
            await asyncio.wait_for(done.wait(), SECONDS)
            assert stream.stats.received == 100
        assert stream.done()
        await stream.result(0)
        assert await stream.exception(0) is None
        assert seen == {f"k{key}": list(range(key, 100, 5)) for key in range(5)}
        assert most > 1

    run(work)


def test_a_stream_can_be_awaited_open_cancelled_and_waited_for() -> None:
    async def work(ps: aio.PubSub) -> None:
        _, sub = await ordered(ps)

        async def handle(message: Message) -> None:
            message.ack()

        stream = await sub.pull(handle, max_workers=3)
        with pytest.raises(TimeoutError, match="goes on"):
            await stream.result(timeout=0.01)
        threads = threading.active_count()
        waiting = [asyncio.create_task(stream.result()) for _ in range(50)]
        await asyncio.sleep(0)
        assert threading.active_count() == threads
        assert stream.cancel()
        await asyncio.gather(*waiting)
        await stream.close()
        assert not stream.cancel()
        async with stream:
            pass

    run(work)


def test_a_loop_ends_at_once_although_a_stream_was_waited_for() -> None:
    async def main() -> None:
        ps = aio.PubSub.in_memory()
        _, sub = await ordered(ps)

        async def handle(message: Message) -> None:
            message.ack()

        async with ps, sub.pull(handle) as stream:
            await asyncio.wait_for(stream.result(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_deleted_subscription_ends_the_stream_with_not_found() -> None:
    async def work(ps: aio.PubSub) -> None:
        _, sub = await ordered(ps)

        async def handle(message: Message) -> None:
            message.ack()

        async with sub.pull(handle) as stream:
            await sub.delete()
            with pytest.raises(NotFound, match="subscription 'billing' was deleted"):
                await stream.result(SECONDS)

    run(work)


def test_pulling_what_does_not_exist_is_an_error_of_the_opening() -> None:
    async def work(ps: aio.PubSub) -> None:
        async def handle(message: Message) -> None: ...

        with pytest.raises(NotFound, match="subscription 'nobody' not found"):
            async with ps.subscription("nobody").pull(handle):
                pass

    run(work)


@pytest.mark.parametrize("callback", [print, lambda message: None, "handle", None])
def test_only_coroutine_functions_are_callbacks(callback: Any) -> None:
    async def work(ps: aio.PubSub) -> None:
        _, sub = await ordered(ps)
        with pytest.raises(InvalidArgument, match="coroutine function"):
            sub.pull(callback)
        with pytest.raises(InvalidArgument, match="coroutine function"):
            sub.pull_batch(callback)

    run(work)


def test_an_object_with_a_coroutine_call_is_a_callback() -> None:
    class Handler:
        async def __call__(self, message: Message) -> None:
            message.ack()

    async def work(ps: aio.PubSub) -> None:
        _, sub = await ordered(ps)
        async with sub.pull(Handler()):
            pass

    run(work)


def test_batches_are_handed_to_coroutines() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        got: list[int] = []
        done = asyncio.Event()

        async def handle(messages: list[Message]) -> None:
            got.extend(int(message.data) for message in messages)
            for message in messages:
                message.ack()
            if len(got) == 20:
                done.set()

        async with sub.pull_batch(handle, max_messages=5, max_latency=0.01):
            await asyncio.gather(*(topic.publish(b"%d" % n, ordering_key=f"k{n}") for n in range(20)))
            await asyncio.wait_for(done.wait(), SECONDS)
        assert sorted(got) == list(range(20))

    run(work)


def test_synchronous_pull_is_awaited() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        assert await sub.receive(1, timeout=0) == []
        late = asyncio.create_task(sub.receive(10))
        await topic.publish(b"x", ordering_key="k")
        (message,) = await asyncio.wait_for(late, SECONDS)
        await sub.modify_ack_deadline([message.ack_id], 60)
        await sub.acknowledge([message.ack_id])
        with pytest.raises(InvalidArgument, match="timeout must not be negative"):
            await sub.receive(1, timeout=-1)

    run(work)


def test_a_cancelled_receive_takes_nothing_more() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        cancelled = asyncio.create_task(sub.receive(1))
        while not (await sub.state()).members:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await topic.publish(b"x", ordering_key="k")
        async with asyncio.timeout(5):  # its thread would keep the message until the deadline (10 s)
            (message,) = await sub.receive(1)
        assert (message.data, message.delivery_attempt) == (b"x", 1)
        message.ack()

    run(work)


def test_an_async_with_block_gives_up_what_receive_holds() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        await topic.publish(b"x", ordering_key="k")
        for _ in range(3):
            async with sub as within:
                (message,) = await within.receive(1)
            assert message.delivery_attempt == 1
        await sub.receive(1)
        await sub.close()
        await sub.close()
        (message,) = await sub.receive(1)
        assert message.delivery_attempt == 1
        message.ack()

    run(work)


def test_a_topic_is_given_partitions_and_progress_is_reported_on_the_loop() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, _ = await ordered(ps)
        ps._sync._cluster.repartitioner._fence_seconds = 0
        told: list[tuple[str, int]] = []
        changed = await ps.repartition_topic(
            "orders", 5, on_progress=lambda each: told.append((each.phase, threading.get_ident()))
        )
        assert (await changed.options()).partitions == 5
        assert {phase for phase, _ in told} >= {"draining", "growing"}
        assert {thread for _, thread in told} == {threading.get_ident()}
        assert await topic.publish(b"x", ordering_key="k")

    run(work)


def test_looks_take_nothing_and_a_tail_follows() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        await asyncio.gather(*(topic.publish(b"%d" % number, ordering_key="k") for number in range(3)))
        for _ in range(2):
            assert [each.data async for each in sub.peek()] == [b"0", b"1", b"2"]
        assert [each.data async for each in sub.peek(1)] == [b"0"]
        assert [each.data async for each in topic.tail(2)] == [b"1", b"2"]
        following = topic.tail(1, follow=True)
        assert (await anext(following)).data == b"2"
        await topic.publish(b"3", ordering_key="k")
        assert (await anext(following)).data == b"3"

    run(work)


# -- closes of callbacks, and calls that are cancelled -----------------------------------------------------------


@pytest.mark.parametrize("in_a_task", [False, True])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("wholly", [False, True])
def test_a_coroutine_may_close_its_stream_or_its_pubsub(wholly: bool, batch: bool, in_a_task: bool) -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await ordered(ps)
        opened: asyncio.Future[aio.Stream] = asyncio.get_running_loop().create_future()
        closed = asyncio.Event()

        async def handle(_: object) -> None:
            stream = await opened
            closes = ps.close() if wholly else stream.close()
            await (asyncio.gather(closes) if in_a_task else closes)
            closed.set()

        stream = await (sub.pull_batch(handle) if batch else sub.pull(handle))
        await topic.publish(b"x", ordering_key="k")
        opened.set_result(stream)
        async with asyncio.timeout(SECONDS / 2):  # a stream waits longer for a callback
            await closed.wait()
        assert stream.done()

    run(work)


def test_a_loop_ends_at_once_although_a_flush_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(kafka_pubsub.Topic, "flush", lambda *_: answered.wait())

    async def main() -> None:
        await asyncio.wait_for(aio.PubSub.in_memory().topic("orders").flush(), 0.1)

    def run_loop() -> None:
        with pytest.raises(TimeoutError):
            asyncio.run(main())

    loop = threading.Thread(target=run_loop, daemon=True)
    loop.start()
    loop.join(5)
    ended = not loop.is_alive()
    answered.set()
    assert ended


def test_a_cancelled_pull_leaves_no_stream_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, go, streams = threading.Event(), threading.Event(), list[kafka_pubsub.Stream]()
    start = Subscriber._start

    def start_late(*arguments: Any) -> kafka_pubsub.Stream:
        opening.set()
        assert go.wait(SECONDS)
        streams.append(start(*arguments))
        return streams[0]

    async def work(ps: aio.PubSub) -> None:
        _, sub = await ordered(ps)

        async def handle(message: Message) -> None:
            message.ack()

        monkeypatch.setattr(Subscriber, "_start", start_late)
        pulling = asyncio.ensure_future(sub.pull(handle)._open())
        assert await asyncio.to_thread(opening.wait, SECONDS)
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        go.set()
        async with asyncio.timeout(5):
            while not streams or not streams[0].done():
                await asyncio.sleep(0.01)

    run(work)
