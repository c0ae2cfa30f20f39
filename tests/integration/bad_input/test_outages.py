"""A broker that isn't there, isn't one, or dies in the middle; a publishing process that dies in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka_pubsub import (
    BrokerUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    Message,
    PublishError,
    PubSub,
    PubSubError,
    RetryPolicy,
    aio,
)
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.bounded_calls import DEADLINE
from tests.acceptance.support import PATIENCE, Deliveries, Room, until

SOON = RetryPolicy(min_backoff=0, max_backoff=0)


@pytest.fixture(scope="module")
def broker(kafka: RunningKafka) -> Iterator[LocalKafka]:
    """A broker of our own, that may be killed; after `kafka`, which skips when there can be none."""
    with LocalKafka() as broker:
        yield broker


@contextlib.contextmanager
def silent_port() -> Iterator[str]:
    """Something that takes connections and never answers: not a Kafka, or one that is frozen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def deaf_port() -> Iterator[str]:
    """Something that doesn't even take connections: nothing comes back, as from a host that is switched off."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # its queue is full after one or two
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def nowhere() -> Iterator[dict[str, str]]:
    """Addresses where no Kafka is, and the reason that is told for each."""
    with deaf_port() as deaf:
        yield {
            "127.0.0.1:1": "connection refused",
            # Not a host name anywhere: no name server is asked, which may take long.
            f"{'x' * 64}.invalid:9092": "host not found",
            deaf: "no answer",
        }


#: Seconds until a wrong address is reported, and for the close after it.
REPORTED = 5.0


def test_addresses_where_no_kafka_is_are_named_within_5_seconds_and_so_is_the_reason(
    nowhere: dict[str, str],
) -> None:
    def error_of(use: Callable[[PubSub], object], address: str) -> tuple[PubSubError, float, float]:
        ps = PubSub(address)
        begun = time.monotonic()
        with pytest.raises(PubSubError) as raised:
            use(ps)
        told = time.monotonic()
        ps.close()
        return raised.value, told - begun, time.monotonic() - told

    uses: list[Callable[[PubSub], object]] = [
        lambda ps: ps.list_topics(),
        lambda ps: ps.create_topic("t"),
        lambda ps: ps.subscription("s").pull(print),
        lambda ps: ps.subscription("s").receive(1, timeout=1),
    ]
    with ThreadPoolExecutor(16) as pool:
        asked = [(use, address) for use in uses for address in nowhere]
        answers = list(pool.map(lambda each: error_of(*each), asked))
    for (_, address), (error, told, closed) in zip(asked, answers, strict=True):
        assert isinstance(error, BrokerUnavailable), error
        assert f"no broker answers at {address} ({nowhere[address]}" in error.message
        assert error.code == 14
        assert max(told, closed) < REPORTED


@pytest.mark.slow
def test_what_takes_connections_and_says_nothing_is_waited_for_and_then_named() -> None:
    """It may be a broker that is far away, or busy; the close needn't wait for it."""
    # The hint is there once librdkafka has said that all brokers are down, at about the time when the call gives up.
    why = r"\(no answer(; if it expects TLS or a login, set security\.protocol)?\)"
    with silent_port() as address:
        ps = PubSub(address)
        begun = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=rf"no broker answers at {address} {why}"):
            ps.list_topics()
        told = time.monotonic()
        ps.close()
        assert REPORTED < told - begun < DEADLINE + REPORTED
        assert time.monotonic() - told < REPORTED


def test_publishing_to_an_address_where_no_kafka_is_says_so_within_5_seconds_and_closes(
    nowhere: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def publish(address: str) -> float:
        begun = time.monotonic()
        ps = PubSub(address)
        future = ps.topic("t").publish(b"x", ordering_key="key")
        until(lambda: f"no broker answers at {address} ({nowhere[address]}" in caplog.text, patience=REPORTED)
        with pytest.raises(TimeoutError, match=address):
            future.result(0)
        assert time.monotonic() - begun < REPORTED
        ps.topic("another").publish(b"y")
        ended = time.monotonic()
        ps.close()
        with pytest.raises(PublishError):
            future.result(0)
        return time.monotonic() - ended

    with caplog.at_level(logging.WARNING, "kafka_pubsub"), ThreadPoolExecutor(4) as pool:
        assert max(pool.map(publish, nowhere)) < REPORTED


def test_the_asyncio_surface_and_the_command_line_say_so_too(nowhere: dict[str, str]) -> None:
    async def ask(address: str) -> None:
        async with asyncio.timeout(2 * REPORTED), aio.PubSub(address) as ps:
            begun = time.monotonic()
            with pytest.raises(BrokerUnavailable, match=address) as raised:
                await ps.list_topics()
            assert time.monotonic() - begun < REPORTED
            assert nowhere[address] in raised.value.message

    async def ask_all() -> None:
        await asyncio.gather(*map(ask, nowhere))

    asyncio.run(ask_all())
    for command in (["topic", "list"], ["publish", "t", "x"], ["pull", "s"]):
        for address, reason in list(nowhere.items())[:2]:
            answer = subprocess.run(
                [sys.executable, "-m", "kafka_pubsub.cli.main", "--bootstrap", address, *command],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert answer.returncode == 1
            (line,) = answer.stderr.splitlines()
            assert f"no broker answers at {address} ({reason}" in line


@pytest.mark.parametrize(
    "address", ["", " ", "host:port", "localhost:0", "localhost:65536", "a b:1", "http://x:1/y"]
)
def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"bootstrap|address"), PubSub(address) as ps:
        ps.list_topics()


def test_a_broker_that_is_down_at_the_start_is_used_once_it_is_up(
    broker: LocalKafka, log: Deliveries
) -> None:
    with PubSub(broker.bootstrap) as ps:
        topic, subscription = Room(ps).pair()
    broker.stop()
    with PubSub(broker.bootstrap) as ps:
        with pytest.raises(BrokerUnavailable, match=broker.bootstrap):
            ps.subscription(subscription.name).pull(log.ack)
        waiting = ps.topic(topic.name).publish(b"early", ordering_key="key")  # it waits for the broker
        broker.start()
        with ps.subscription(subscription.name).pull(log.ack):
            waiting.result(PATIENCE)
            ps.topic(topic.name).publish(b"late", ordering_key="key").result(PATIENCE)
            log.wait_for(2)
    assert log.bodies == [b"early", b"late"]


def nack_sevens(log: Deliveries) -> Callable[[Message], None]:
    """Returns a callback that nacks the first delivery of each body that ends in 7, and acks all others."""

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.delivery_attempt == 1 and message.data.endswith(b"7"):
                message.nack()
            else:
                message.ack()

    return handle


def test_a_broker_that_is_killed_in_the_middle_costs_time_only(broker: LocalKafka, log: Deliveries) -> None:
    """While publishing and consuming at full speed, with nacks: nothing lost, every key in its order."""
    keys, rounds = 20, 200
    with PubSub(broker.bootstrap) as ps:
        topic, subscription = Room(ps).pair(retry=SOON)

        def publish() -> None:
            for number in range(rounds):
                for key in range(keys):
                    topic.publish(b"%d" % number, ordering_key=f"key-{key}")
                time.sleep(0.01)  # so that the kills come in the middle

        publisher = threading.Thread(target=publish)
        with subscription.pull(nack_sevens(log)) as stream:
            publisher.start()
            log.wait_for_distinct(200)
            broker.kill()
            broker.start()
            publisher.join()
            topic.flush(PATIENCE)
            log.wait_for_distinct(keys * rounds)
            until(lambda: stream.stats.in_flight == 0 and stream.stats.buffered_bytes == 0)
            assert not stream.done()
    expected = [b"%d" % number for number in range(rounds)]
    assert log.first_of_each() == {f"key-{key}": expected for key in range(keys)}
    assert log.most_of_a_key == 1


def test_closing_without_a_broker_ends_in_bounded_time(broker: LocalKafka, log: Deliveries) -> None:
    ps = PubSub(broker.bootstrap)
    topic, subscription = Room(ps).pair()
    stream = subscription.pull(log.ack)
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    log.wait_for(1)
    broker.kill()
    started = time.monotonic()
    stream.close()
    ps.close()
    # 7 s where nobody else computes: no request that gets no answer is waited for until its own limit of 15 s.
    assert time.monotonic() - started < PATIENCE / 2
    assert stream.done()
    broker.start()


def test_calls_without_a_broker_give_up_in_time_whatever_the_process_waits_for_beside_them(
    broker: LocalKafka, log: Deliveries
) -> None:
    """Streams and publishers ask about their topics too, and each call has 15 seconds, not each after the other."""
    ps = PubSub(broker.bootstrap)
    topic, subscription = Room(ps).pair()
    other = Room(ps).pair()[1]
    subscription.pull(log.ack)
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    log.wait_for(1)
    broker.kill()

    def seconds_of(call: Callable[[], object]) -> float:
        begun = time.monotonic()
        with pytest.raises((BrokerUnavailable, DeadlineExceeded)):
            call()
        return time.monotonic() - begun

    calls = [
        lambda: ps.create_topic("another"),
        lambda: ps.create_topic(topic.name, exist_ok=True),
        lambda: subscription.pull(log.ack),
        lambda: other.pull(log.ack),
        lambda: other.receive(1, timeout=1),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        took = list(pool.map(seconds_of, calls))
    assert max(took) < DEADLINE + REPORTED / 2
    ps.close()
    broker.start()


#: Seconds in which members lose their sessions, and commits and transactions are given up.
EVERYTHING_IS_LOST = 15.0
#: Seconds until everything is as before. On a busy machine a broker that was frozen leads nothing for a minute.
BACK_IN_SERVICE = 150.0


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_an_outage_is_one_warning_for_the_whole_process(
    broker: LocalKafka, log: Deliveries, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Streams lose their sessions, commits and moves aren't answered, publishers wait: one warning says it all."""
    caplog.set_level(logging.INFO, "kafka_pubsub")

    def publish() -> None:
        for number in itertools.count():
            for topic in topics:
                topic.publish(b"%d" % number, ordering_key=f"key-{number % 10}")
            if over.wait(0.05):
                return

    def told(text: str) -> list[logging.LogRecord]:
        """The lines with that text, but for those about addresses of other tests, and of threads that they left."""
        lines = [each for each in list(caplog.records) if text in each.getMessage()]
        return [
            each
            for each in lines
            if (
                broker.bootstrap in each.getMessage()
                if each.name == "kafka_pubsub.kafka"
                else each.thread not in foreign
            )
        ]

    foreign = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
    over = threading.Event()
    with PubSub(broker.bootstrap) as ps, contextlib.ExitStack() as streams:
        pairs = [Room(ps).pair(retry=SOON) for _ in range(3)]
        topics = [topic for topic, _ in pairs]
        for _, subscription in pairs:
            streams.enter_context(subscription.pull(nack_sevens(log)))
        publisher = threading.Thread(target=publish)
        publisher.start()
        streams.callback(publisher.join)
        streams.callback(over.set)
        log.wait_for(100)
        caplog.clear()
        _take_away(broker, how)
        until(lambda: told("publishing and receiving wait for it"))
        time.sleep(EVERYTHING_IS_LOST)
        warnings = [each for each in told("") if each.levelno >= logging.WARNING]
        _bring_back(broker, how)
        until(lambda: told(f"a broker answers again at {broker.bootstrap}, after"))
        before = len(log.all)
        until(lambda: len(log.all) >= before + 500, "deliveries", patience=BACK_IN_SERVICE)
    (warning,) = warnings
    assert f"no broker answers at {broker.bootstrap}" in warning.getMessage()
    again = [each for each in told("no broker answers") if each.levelno >= logging.WARNING]
    # It is said once a minute, and on a busy machine the broker may take longer to come back.
    assert [each for each in again if each.created < warning.created + 55.0] == warnings


def _take_away(broker: LocalKafka, how: str) -> None:
    if how == "killed":
        broker.kill()
    elif broker.pid is not None:
        os.kill(broker.pid, signal.SIGSTOP)


def _bring_back(broker: LocalKafka, how: str) -> None:
    if how == "killed":
        broker.start()
    elif broker.pid is not None:
        os.kill(broker.pid, signal.SIGCONT)


PUBLISHER = """
    import os, sys
    from kafka_pubsub import PubSub

    diary = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND)
    with PubSub(sys.argv[1]) as ps:
        topic = ps.topic(sys.argv[2])
        for number in range(1_000_000):
            for key in range(10):
                line = b"key-%d %d\\n" % (key, number)
                done = lambda future, line=line: future.exception() or os.write(diary, line)
                topic.publish(b"%d" % number, ordering_key=f"key-{key}").add_done_callback(done)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_publisher_that_is_killed_has_stored_what_it_was_reported_and_left_no_gap(
    kafka: RunningKafka, room: Room, log: Deliveries, tmp_path: Path, how: signal.Signals
) -> None:
    topic, subscription = room.pair()
    diary = tmp_path / "diary"
    diary.touch()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PUBLISHER), kafka.bootstrap, topic.name, str(diary)]
    ) as process:
        until(lambda: diary.read_bytes().count(b"\n") > 5000)
        os.kill(process.pid, how)
        process.wait(PATIENCE)
    told = [line.split() for line in diary.read_bytes().rpartition(b"\n")[0].splitlines()]
    topic.publish(b"end").result(PATIENCE)
    with subscription.pull(log.ack):
        until(lambda: subscription.state().lag == 0 and b"end" in log.bodies)
        until(lambda: subscription.state().lag == 0)
    delivered = log.by_key
    del delivered[None]
    for bodies in delivered.values():
        assert bodies == [b"%d" % number for number in range(len(bodies))]
    for key, body in told:
        assert int(body) < len(delivered[key.decode()])
