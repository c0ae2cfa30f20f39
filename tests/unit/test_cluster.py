"""A single cluster in use: what closing stores, ends and leaves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

import kafka_pubsub.local
from kafka_pubsub import FailedPrecondition, Message, PubSub, PubSubError
from kafka_pubsub.log.memory.backend import MemoryBackend


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KAFKA_PUBSUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(kafka_pubsub.local, "find_running", lambda: None)


EVERY_CALL: list[Callable[[PubSub], object]] = [
    lambda ps: ps.create_topic("t"),
    lambda ps: ps.adopt_topic("t"),
    lambda ps: ps.update_topic("t", labels={}),
    lambda ps: ps.delete_topic("t"),
    lambda ps: ps.list_topics(),
    lambda ps: ps.create_subscription("s", "t"),
    lambda ps: ps.update_subscription("s", labels={}),
    lambda ps: ps.delete_subscription("s"),
    lambda ps: ps.list_subscriptions(),
    lambda ps: ps.topic("t").options,
    lambda ps: ps.topic("t").publish(b"x"),
    lambda ps: ps.topic("t").flush(1),
    lambda ps: ps.subscription("s").options,
    lambda ps: ps.subscription("s").pull(print),
    lambda ps: ps.subscription("s").receive(1, 0),
    lambda ps: ps.subscription("s").acknowledge([]),
    lambda ps: ps.subscription("s").state(),
]


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("call", EVERY_CALL)
def test_after_closing_every_call_says_that_it_is_closed(
    call: Callable[[PubSub], object], used: bool
) -> None:
    ps = PubSub.in_memory()
    if used:
        ps.create_topic("t").publish(b"x").result(timeout=10)
        ps.create_subscription("s", "t").receive(1, 0)
    ps.close()
    ps.close()
    with pytest.raises(FailedPrecondition, match="closed"):
        call(ps)


def test_closing_stores_what_was_published_and_ends_the_streams(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders")
    sub = ps.create_subscription("billing", "orders")
    received = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        received.set()

    stream = sub.pull(handle)
    future = topic.publish(b"x")
    assert received.wait(10)
    ps.close()
    assert future.done()
    assert stream.done()
    stream.result(0)
    assert backend.admin.group_members("billing") == 0
    committed = backend.admin.group_offsets("billing", "orders")
    assert sum(each.offset or 0 for each in committed.values()) == 1


def test_an_error_while_closing_does_not_leave_the_rest_open(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    ps.create_topic("orders").publish(b"x").result(timeout=10)
    monkeypatch.setattr("kafka_pubsub.publish.publisher.TopicPublisher.close", fail)
    monkeypatch.setattr(MemoryBackend, "close", lambda self: closed.append("backend"))
    with pytest.raises(RuntimeError, match="a defect"):
        ps.close()
    assert closed == ["backend"]


def in_a_child(work: Callable[[], object]) -> str:
    """What the work says in a forked child: its result, or its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(work())
        except PubSubError as error:
            said = f"{type(error).__name__}: {error.message}"
        except BaseException as error:
            said = f"not ours: {error!r}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("call", EVERY_CALL)
def test_after_a_fork_every_call_in_the_child_says_so(ps: PubSub, call: Callable[[PubSub], object]) -> None:
    ps.create_topic("t").publish(b"x").result(timeout=10)
    ps.create_subscription("s", "t")
    said = in_a_child(lambda: call(ps))
    assert said.startswith("FailedPrecondition: "), said
    assert "fork" in said
    assert ps.topic("t").publish(b"y").result(timeout=10)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_closing_in_a_forked_child_leaves_the_parent_alone(ps: PubSub) -> None:
    topic = ps.create_topic("t")
    topic.publish(b"x").result(timeout=10)
    assert in_a_child(ps.close) == "None"
    assert topic.publish(b"y").result(timeout=10)


def test_a_pubsub_that_was_not_used_may_be_carried_through_a_fork() -> None:
    ps = PubSub.in_memory()
    topic = ps.topic("t")

    def work() -> str:
        ps.create_topic("t")
        return topic.publish(b"x").result(timeout=10)

    assert in_a_child(work).startswith("'t:")
