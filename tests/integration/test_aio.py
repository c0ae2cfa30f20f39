"""The asyncio version on a real Kafka: publish to callback, Ctrl-C, a loop that never blocks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import uuid

import pytest

from kafka_pubsub import BrokerUnavailable, Message
from kafka_pubsub.aio import PubSub
from kafka_pubsub.local import LocalKafka

SECONDS = 60


def test_a_thousand_messages_reach_coroutines_in_the_order_of_their_keys(kafka: LocalKafka) -> None:
    async def main() -> dict[str, list[int]]:
        name = f"aio-{uuid.uuid4().hex[:12]}"
        seen: dict[str, list[int]] = {}
        done = asyncio.Event()

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            seen.setdefault(message.ordering_key or "", []).append(int(message.data))
            message.ack()
            if sum(map(len, seen.values())) >= 1000:
                done.set()

        async with asyncio.timeout(SECONDS), PubSub(kafka.bootstrap) as ps:
            topic = await ps.create_topic(name, partitions=4, message_ordering=True)
            sub = await ps.create_subscription(name, topic, message_ordering=True)
            async with sub.pull(handle) as stream:
                futures = [topic.publish(b"%d" % n, ordering_key=f"k{n % 20}") for n in range(1000)]
                ids = await asyncio.gather(*futures)
                assert len(set(ids)) == 1000
                await done.wait()
                assert not stream.done()
            await sub.delete()
            await topic.delete()
        return seen

    seen = asyncio.run(main())
    assert seen == {f"k{key}": list(range(key, 1000, 20)) for key in range(20)}


def test_the_loop_goes_on_while_nobody_answers() -> None:
    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.01)

        counting = asyncio.create_task(count())
        async with PubSub("127.0.0.1:1") as ps:
            with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
                await ps.list_topics()
        counting.cancel()
        return turns

    # Each turn takes 10 ms; the call takes seconds.
    assert asyncio.run(main()) > 50


PROGRAM = """
import asyncio, sys
from kafka_pubsub.aio import PubSub

async def main(address, name):
    async def handle(message):
        message.ack()

    async with PubSub(address) as ps:
        topic = await ps.create_topic(name)
        sub = await ps.create_subscription(name, topic)
        async with sub.pull(handle) as stream:
            await topic.publish(b"x")
            print("ready", flush=True)
            try:
                await stream.result()
            finally:
                print("closing", flush=True)
    print("never", flush=True)

try:
    asyncio.run(main(*sys.argv[1:]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_waiting_stream_cleanly(kafka: LocalKafka) -> None:
    name = f"aio-{uuid.uuid4().hex[:12]}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kafka.bootstrap, name], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert process.stdout.read().split() == ["closing", "interrupted"]
        assert process.wait(SECONDS) == 0
        assert time.monotonic() - started < SECONDS
    finally:
        process.kill()
        process.wait()
