"""From the constructor to the end: where the address comes from, when something connects, closing, forking."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kafka_pubsub.local
from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub, PubSubError
from kafka_pubsub.log.memory.backend import MemoryBackend

#: Nothing listens there, and nobody is asked before the first call.
NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("KAFKA_PUBSUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(kafka_pubsub.local, "find_running", lambda: None)


# -- the address -----------------------------------------------------------------------------------------------


def test_without_an_address_the_error_says_how_to_get_a_kafka() -> None:
    with pytest.raises(FailedPrecondition, match="kafka-pubsub up") as caught:
        PubSub()
    assert "KAFKA_PUBSUB_BOOTSTRAP" in caught.value.message


def test_the_address_is_looked_for_in_the_order_of_how_explicit_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_pubsub.local, "find_running", lambda: "embedded:1")
    assert "embedded:1" in repr(PubSub())
    monkeypatch.setenv("KAFKA_PUBSUB_BOOTSTRAP", "environment:2")
    assert "environment:2" in repr(PubSub())
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", '{"bootstrap.servers": "json:3"}')
    assert "json:3" in repr(PubSub())
    assert "config:4" in repr(PubSub(config={"bootstrap.servers": "config:4"}))
    assert "argument:5" in repr(PubSub("argument:5", config={"bootstrap.servers": "config:4"}))


@pytest.mark.parametrize("address", ["", "  ", 9092, b"localhost:9092", ["a:1"]])
def test_an_address_that_is_none_is_refused(address: Any) -> None:
    with pytest.raises(InvalidArgument, match="bootstrap must be an address like 'localhost:9092'"):
        PubSub(address)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KAFKA_PUBSUB_CREATE", "perhaps", "must be true or false (got 'perhaps')"),
        ("KAFKA_PUBSUB_GROUP_PROTOCOL", "newest", "must be 'classic' or 'consumer' (got 'newest')"),
        ("KAFKA_PUBSUB_CONFIG", "{", "isn't JSON: write an object"),
        ("KAFKA_PUBSUB_CONFIG", "[1]", "must be an object of names and values"),
        ("KAFKA_PUBSUB_CONFIG", '{"a": [1]}', ".a."),
    ],
)
def test_a_wrong_setting_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=f"environment: {name}") as caught:
        PubSub(NOWHERE)
    assert said in caught.value.message


def test_a_password_in_a_broken_config_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", '{"sasl.password": "secret"')
    with pytest.raises(InvalidArgument) as caught:
        PubSub(NOWHERE)
    assert "secret" not in caught.value.message


def test_a_variable_in_small_letters_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("kafka_pubsub_bootstrap", "environment:2")
    assert "environment:2" in repr(PubSub())


def test_an_unknown_group_protocol_is_refused() -> None:
    protocol: Any = "newest"
    with pytest.raises(InvalidArgument, match="'classic' or 'consumer', not 'newest'"):
        PubSub(NOWHERE, group_protocol=protocol)


def test_create_comes_from_the_argument_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    class Recorded(MemoryBackend):
        def __init__(self, *args: object, create: bool, **rest: object) -> None:
            made.append(create)
            super().__init__()

    monkeypatch.setattr("kafka_pubsub.log.kafka.backend.KafkaBackend", Recorded)
    PubSub(NOWHERE).list_topics()
    monkeypatch.setenv("KAFKA_PUBSUB_CREATE", "false")
    PubSub(NOWHERE).list_topics()
    PubSub(NOWHERE, create=True).list_topics()
    assert made == [True, False, True]


# -- the first use and the end ---------------------------------------------------------------------------------


def test_making_a_pubsub_and_handles_connects_to_nothing() -> None:
    before = threading.active_count()
    with PubSub(NOWHERE) as ps:
        ps.topic("orders")
        ps.subscription("billing")
        assert threading.active_count() == before
    assert threading.active_count() == before


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


# -- forking ---------------------------------------------------------------------------------------------------


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


# -- importing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import kafka_pubsub", {"confluent_kafka", "pydantic", "asyncio"}),
        ("import kafka_pubsub.model", {"confluent_kafka", "pydantic"}),
        ("import kafka_pubsub.aio", {"confluent_kafka", "pydantic"}),
        ("from kafka_pubsub import PubSub; PubSub.in_memory().list_topics()", {"confluent_kafka"}),
    ],
)
def test_importing_loads_only_what_is_used(statement: str, heavy: set[str]) -> None:
    program = f"{statement}\nimport sys\nprint(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
