"""A broker that isn't there, isn't one, or dies in the middle; a publishing process that dies in the middle."""

from __future__ import annotations

import contextlib
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

from kafka_pubsub import BrokerUnavailable, InvalidArgument, Message, PubSub, PubSubError, RetryPolicy
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.pytest_plugin import RunningKafka
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


def test_addresses_where_no_kafka_is_are_named_in_bounded_time() -> None:
    def error_of(use: Callable[[PubSub], object], address: str) -> PubSubError:
        with PubSub(address) as ps, pytest.raises(PubSubError) as raised:
            use(ps)
        return raised.value

    uses: list[Callable[[PubSub], object]] = [
        lambda ps: ps.list_topics(),
        lambda ps: ps.create_topic("t"),
        lambda ps: ps.subscription("s").pull(print),
        lambda ps: ps.subscription("s").receive(1, timeout=1),
    ]
    started = time.monotonic()
    with silent_port() as silent, ThreadPoolExecutor(16) as pool:
        addresses = ["127.0.0.1:1", "no-such-host.invalid:9092", silent]
        asked = [(use, address) for use in uses for address in addresses]
        errors = list(pool.map(lambda each: error_of(*each), asked))
    assert time.monotonic() - started < PATIENCE
    for (_, address), error in zip(asked, errors, strict=True):
        assert isinstance(error, BrokerUnavailable), error
        assert address in error.message
        assert error.code == 14


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


def test_a_broker_that_is_killed_in_the_middle_costs_time_only(broker: LocalKafka, log: Deliveries) -> None:
    """While publishing and consuming at full speed, with nacks: nothing lost, every key in its order."""
    keys, rounds = 20, 200
    with PubSub(broker.bootstrap) as ps:
        topic, subscription = Room(ps).pair(retry=SOON)

        def handle(message: Message) -> None:
            with log.handling(message):
                if message.delivery_attempt == 1 and message.data.endswith(b"7"):
                    message.nack()
                else:
                    message.ack()

        def publish() -> None:
            for number in range(rounds):
                for key in range(keys):
                    topic.publish(b"%d" % number, ordering_key=f"key-{key}")
                time.sleep(0.01)  # so that the kills come in the middle

        publisher = threading.Thread(target=publish)
        with subscription.pull(handle) as stream:
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
def test_a_publisher_that_is_killed_has_stored_what_it_was_told_and_left_no_gap(
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
