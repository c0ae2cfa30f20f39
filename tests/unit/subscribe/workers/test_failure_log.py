"""A callback that raises: one traceback for each message, then a line for each further failure."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy, Subscription, aio
from kafka_pubsub.log.memory.backend import MemoryBackend
from tests.support import until

PATIENCE = 30.0
QUICK = RetryPolicy(min_backoff=0.001, max_backoff=0.002)


class Failing:
    """Raises for each message so often, then acks it; `errors` are the classes that it raises in turn."""

    def __init__(self, errors: list[type[Exception]]) -> None:
        self.errors = errors
        self.calls: Counter[str] = Counter()
        self.acked = threading.Semaphore(0)

    def __call__(self, message: Message) -> None:
        at = self.calls[message.message_id]
        self.calls[message.message_id] += 1
        if at < len(self.errors):
            raise self.errors[at](f"no,\nnot at {at}")
        message.ack()
        self.acked.release()

    def batch(self, messages: list[Message]) -> None:
        for message in messages:
            self(message)

    async def coroutine(self, message: Message) -> None:
        self(message)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.acked.acquire(timeout=PATIENCE)


def pulled(sub: Subscription, failing: Failing) -> None:
    with sub.pull(failing):
        failing.wait(3)


def pulled_by_one(sub: Subscription, failing: Failing) -> None:
    with sub.pull(failing, max_workers=1):
        failing.wait(3)


def pulled_as_batches(sub: Subscription, failing: Failing) -> None:
    with sub.pull_batch(failing.batch, max_messages=1):
        failing.wait(3)


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


def publish(ps: PubSub) -> Subscription:
    topic = ps.create_topic("orders", partitions=1)
    sub = ps.create_subscription("billing", topic, message_ordering=True, retry=QUICK)
    for key in "abc":
        topic.publish(b"x", ordering_key=key).result(PATIENCE)
    return sub


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """Each line about a callback that raised, and whether it has a traceback."""
    return [
        (each.getMessage(), bool(each.exc_info)) for each in caplog.records if " raised" in each.getMessage()
    ]


@pytest.mark.parametrize("pull", [pulled, pulled_by_one, pulled_as_batches])
def test_each_message_has_one_traceback(
    backend: MemoryBackend,
    caplog: pytest.LogCaptureFixture,
    pull: Callable[[Subscription, Failing], None],
) -> None:
    with PubSub.in_memory(backend) as ps:
        pull(publish(ps), Failing([ValueError] * 4))
    lines = logged(caplog)
    assert [traced for _, traced in lines].count(True) == 3
    again = [line for line, traced in lines if not traced]
    assert len(again) == 9
    assert all("\n" not in line for line in again)
    assert (
        "the callback of <Message orders:0:0 key='a' attempt=2 1 bytes> raised again, which is a nack: "
        in [line.partition("ValueError")[0] for line in again]
    )


def test_a_coroutine_is_logged_in_the_same_way(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing([ValueError] * 3)

    async def main() -> None:
        async with aio.PubSub.in_memory() as ps:
            topic = await ps.create_topic("orders", partitions=1)
            sub = await ps.create_subscription("billing", topic, message_ordering=True, retry=QUICK)
            await topic.publish(b"x", ordering_key="k")
            async with sub.pull(failing.coroutine):
                await asyncio.to_thread(failing.wait, 1)

    asyncio.run(main())
    assert [traced for _, traced in logged(caplog)] == [True, False, False]


def test_another_error_of_the_same_message_has_its_traceback(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with PubSub.in_memory(backend) as ps:
        pulled(publish(ps), Failing([ValueError, ValueError, KeyError, KeyError]))
    assert [traced for _, traced in logged(caplog)].count(True) == 6


def test_the_next_process_knows_that_the_traceback_was_logged(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with PubSub.in_memory(backend) as ps:
        sub = publish(ps)
        ps.update_subscription("billing", retry=RetryPolicy(min_backoff=1, max_backoff=1))
        with sub.pull(Failing([ValueError])):
            until(lambda: len(sub.keys()) == 3)
    caplog.clear()
    caplog.set_level(logging.ERROR)
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster)) as ps:
        pulled(ps.subscription("billing"), Failing([ValueError]))
    assert [traced for _, traced in logged(caplog)] == [False] * 3
