"""A client in memory runs a router and a sequencer of its own, from the first message that needs one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub import DelayRouter, PubSub, Sequencer, aio
from kafka_pubsub.log.memory import MemoryBackend
from tests.support import until

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [each.name for each in set(threading.enumerate()) - before if "kafka_pubsub" in each.name] == []


def threads() -> set[str]:
    return {each.name for each in threading.enumerate()} & {
        "kafka_pubsub-delay router",
        "kafka_pubsub-sequencer",
    }


def test_without_need_no_service_runs() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders").publish(b"now").result(PATIENCE)
        assert threads() == set()


def test_delayed_messages_come_without_a_word() -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic)
        message_id = topic.publish(b"later", delay=0.05).result(PATIENCE)
        (message,) = sub.receive(1, timeout=PATIENCE)
        message.ack()
        assert (message.data, message.message_id) == (b"later", message_id)
        assert threads() == {"kafka_pubsub-delay router"}
        assert topic.cancel(topic.publish(b"never", delay=600).result(PATIENCE)) is True


def test_messages_to_causal_topics_come_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with PubSub.in_memory() as ps:
        for name in "ab":
            ps.create_topic(name, causal=True)
        sub = ps.create_subscription("billing", "b")
        ps.publish_multi(["a", "b"], b"to both").result(PATIENCE)
        (message,) = sub.receive(1, timeout=PATIENCE)
        message.ack()
        assert threads() == {"kafka_pubsub-sequencer"}
        ps.delete_topic("a")
        ps.topic("b").publish(b"left on its way")
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_client_of_a_cluster_with_waiting_messages_brings_them_home() -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend, services=False) as ps:
        topic = ps.create_topic("orders")
        ps.create_topic("a", causal=True)
        ps.create_subscription("billing", "orders")
        topic.publish(b"later", delay=0.05).result(PATIENCE)
    with PubSub.in_memory(backend) as ps:
        sub = ps.subscription("billing")
        assert [each.name for each in ps.list_subscriptions()] == ["billing"]
        assert threads() == {"kafka_pubsub-delay router", "kafka_pubsub-sequencer"}
        (message,) = sub.receive(1, timeout=PATIENCE)
        message.ack()


def test_a_service_that_the_program_starts_takes_the_place_of_the_own_one() -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        ps.create_topic("a", causal=True)
        topic.publish(b"first", delay=0.01).result(PATIENCE)
        with DelayRouter(ps) as router, Sequencer(ps) as sequencer:
            assert threads() <= {"kafka_pubsub-delay router", "kafka_pubsub-sequencer"}
            topic.publish(b"second", delay=0.01).result(PATIENCE)
            ps.topic("a").publish(b"in order").result(PATIENCE)
            until(lambda: router.metrics().get("home"))
            until(lambda: sequencer.metrics().get("delivered"))
            assert (ps.delays.routers(), ps.multicast.sequencers()) == (1, 1)
        assert threads() == set()


def test_services_false_runs_none() -> None:
    with PubSub.in_memory(services=False) as ps:
        ps.create_topic("orders").publish(b"later", delay=600).result(PATIENCE)
        ps.create_topic("a", causal=True).publish(b"waits")
        assert threads() == set()
        assert (ps.delays.routers(), ps.multicast.sequencers()) == (0, 0)


def test_the_asyncio_version_does_the_same() -> None:
    async def play() -> None:
        async with asyncio.timeout(PATIENCE), aio.PubSub.in_memory() as ps:
            topic = await ps.create_topic("orders")
            sub = await ps.create_subscription("billing", "orders")
            await topic.publish(b"later", delay=0.05)
            (message,) = await sub.receive(1, timeout=PATIENCE)
            message.ack()
            await ps.create_topic("a", causal=True)
            await (await ps.publish_multi(["a"], b"in order"))
        async with aio.PubSub.in_memory(services=False) as ps:
            await (await ps.create_topic("orders")).publish(b"later", delay=600)
            assert threads() == set()

    asyncio.run(play())
