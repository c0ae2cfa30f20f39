"""Dead letters through the asyncio version."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafka_pubsub import DeadLetterPolicy, DeadLetterProgress, DelayRouter, Message, RetryPolicy, aio
from kafka_pubsub.dead_letters import replay as replaying

SECONDS = 20
QUICK = RetryPolicy(min_backoff=0.001, max_backoff=0.002)


def run(work: Callable[[aio.PubSub], Awaitable[None]]) -> None:
    """Runs the work on a new loop with a new cluster in memory."""

    async def main() -> None:
        async with asyncio.timeout(60), aio.PubSub.in_memory() as ps:
            await work(ps)

    asyncio.run(main())


async def subscribed(ps: aio.PubSub) -> tuple[aio.Topic, aio.Subscription]:
    topic = await ps.create_topic("orders", partitions=3, message_ordering=True)
    await ps.create_topic("dead", partitions=1)
    policy = DeadLetterPolicy(topic="dead")
    sub = await ps.create_subscription("s", topic, message_ordering=True, retry=QUICK, dead_letter=policy)
    return topic, sub


def test_dead_letters_are_listed_and_replayed_on_the_loop() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic, sub = await subscribed(ps)

        async def fail(message: Message) -> None:
            message.nack()

        async with sub.pull(fail):
            await topic.publish(b"1", ordering_key="k")
            while not (dead_letters := [each async for each in sub.dead_letters()]):
                await asyncio.sleep(0.01)
        assert [each.data for each in dead_letters] == [b"1"]
        assert (await sub.replay_dead_letters(dry_run=True)).count == 1
        told: list[DeadLetterProgress] = []
        assert (await sub.replay_dead_letters(keys=["k"], on_progress=told.append)).count == 1
        assert told[-1] == DeadLetterProgress("replaying", 1, 1)
        (message,) = await sub.receive(timeout=SECONDS)
        assert message.data == b"1"
        message.ack()
        assert (await sub.purge_dead_letters()).count == 0
        assert (await sub.release()).count == 0
        assert await sub.keys() == []

    run(work)


def test_a_cancelled_replay_stops_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "BATCH", 1)

    async def work(ps: aio.PubSub) -> None:
        topic, sub = await subscribed(ps)

        async def fail(message: Message) -> None:
            message.nack()

        async def left() -> int:
            return len([each async for each in sub.dead_letters()])

        async with sub.pull(fail):
            for number in range(4):
                await topic.publish(b"%d" % number, ordering_key=f"k{number}")
            while await left() < 4:
                await asyncio.sleep(0.01)
        begun, go = asyncio.Event(), threading.Event()
        real = replaying.DeadLetters.store

        def slowly(*arguments: Any) -> None:
            real(*arguments)
            loop.call_soon_threadsafe(begun.set)
            assert go.wait(SECONDS)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(replaying.DeadLetters, "store", slowly)
        replay = asyncio.create_task(sub.replay_dead_letters())
        await begun.wait()
        replay.cancel()
        with pytest.raises(asyncio.CancelledError):
            await replay
        go.set()
        monkeypatch.setattr(replaying.DeadLetters, "store", real)
        while (before := await left()) == 4:
            await asyncio.sleep(0.01)
        assert before == 3
        assert (await sub.replay_dead_letters()).count == 3

    run(work)


def test_dead_letters_of_the_delays_are_listed_replayed_and_purged_on_the_loop() -> None:
    async def work(ps: aio.PubSub) -> None:
        topic = await ps.create_topic("orders", partitions=1)
        with DelayRouter(ps._sync, tiers=1) as router:
            published = [await topic.publish(b"%d" % n, delay=0.3) for n in range(2)]
            await ps.delete_topic("orders")
            while router.metrics().get("dead") != 2:
                await asyncio.sleep(0.01)
        found = {each.data: each async for each in ps.delays.dead_letters()}
        assert [found[b"%d" % n].message_id for n in range(2)] == published
        await ps.create_topic("orders", partitions=1)
        assert (await ps.delays.replay(ids=[found[b"0"].id])).count == 1
        assert (await ps.delays.purge(dry_run=True)).count == 1
        assert (await ps.delays.purge(topic="orders")).count == 1
        assert [each async for each in ps.delays.dead_letters()] == []

    run(work)
