"""A broker that isn't there, goes away and comes back; processes that end, or fork, in the middle."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_pubsub.config import PublishFlow
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PublishError, ResourceExhausted
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
from kafka_pubsub.publish.writer_pool import WriterPool

# Seconds; upper bounds for a slow machine, not expectations.
PATIENCE = 60.0
KAFKAS_LIMIT = 1_048_588


@pytest.fixture(scope="module")
def broker(kafka: LocalKafka) -> Iterator[LocalKafka]:
    """A broker of our own, that may be killed; after `kafka`, which skips when there can be none."""
    with LocalKafka() as broker:
        yield broker


def new_topic(bootstrap: str, partitions: int = 4) -> str:
    name = f"publish-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
    return name


def stored(bootstrap: str, topic: str, partitions: int = 4) -> list[tuple[bytes | None, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)[1]
        for number in range(partitions)
    }
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    records: list[tuple[bytes | None, bytes]] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < sum(ends.values()) and time.monotonic() < deadline:
        records += [(each.key(), each.value() or b"") for each in consumer.consume(1000, 0.2)]
    consumer.close()
    return records


def assert_all_once_and_in_order(bootstrap: str, topic: str, count: int, keys: int) -> None:
    records = stored(bootstrap, topic)
    assert len(records) == count
    for key in range(keys):
        numbers = [int(body) for each, body in records if each == b"key-%d" % key]
        assert numbers == list(range(key, count, keys))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_that_dies_in_the_middle_costs_time_only(broker: LocalKafka, end: str) -> None:
    name = new_topic(broker.bootstrap)
    backend = KafkaBackend(broker.bootstrap)
    writers = WriterPool(backend.writer)
    publisher = TopicPublisher(name, lambda: PublishTarget(None, KAFKAS_LIMIT), writers)
    futures: list[Future[str]] = []
    dying = threading.Thread(target=getattr(broker, end))
    for number in range(30_000):
        if number == 10_000:
            dying.start()
        futures.append(publisher.publish(b"%d" % number, ordering_key=f"key-{number % 50}"))
        if number % 1000 == 0:
            time.sleep(0.01)  # so that the broker dies while messages are on their way
    dying.join()
    late = publisher.publish(b"30000", ordering_key="key-0")
    with pytest.raises(TimeoutError):
        late.result(timeout=0.1)
    with pytest.raises(DeadlineExceeded, match=r"still waits? for the broker"):
        publisher.flush(0.1)

    broker.start()
    assert not wait([*futures, late], timeout=PATIENCE).not_done
    assert [future.exception() for future in futures if future.exception()] == []
    assert len({future.result() for future in futures}) == len(futures)
    publisher.close()
    writers.close()
    backend.close()
    assert_all_once_and_in_order(broker.bootstrap, name, 30_001, 50)


def test_published_before_the_broker_is_there(broker: LocalKafka) -> None:
    name = new_topic(broker.bootstrap)
    broker.stop()
    backend = KafkaBackend(broker.bootstrap)
    writers = WriterPool(backend.writer)
    answers = iter([BrokerUnavailable("no broker")] * 2)

    def target() -> PublishTarget:
        for error in answers:
            raise error
        return PublishTarget(None, KAFKAS_LIMIT)

    publisher = TopicPublisher(name, target, writers)
    futures = [publisher.publish(b"%d" % number, ordering_key=f"key-{number % 5}") for number in range(100)]
    with pytest.raises(TimeoutError):
        futures[0].result(timeout=0.1)
    broker.start()
    assert not wait(futures, timeout=PATIENCE).not_done
    publisher.close()
    writers.close()
    backend.close()
    assert_all_once_and_in_order(broker.bootstrap, name, 100, 5)


def test_closing_without_a_broker_fails_what_waits_and_says_so(broker: LocalKafka) -> None:
    name = new_topic(broker.bootstrap)
    broker.stop()
    backend = KafkaBackend(broker.bootstrap)
    writers = WriterPool(backend.writer)
    publisher = TopicPublisher(name, lambda: PublishTarget(None, KAFKAS_LIMIT), writers)
    publisher.configure(flow=PublishFlow(max_messages=10, on_limit="error"))
    keyed = [publisher.publish(b"x", ordering_key=f"key-{number % 2}") for number in range(5)]
    unkeyed = [publisher.publish(b"x") for number in range(5)]
    with pytest.raises(ResourceExhausted, match="PublishFlow allows 10"):
        publisher.publish(b"x")
    publisher.close(timeout=0.2)
    writers.close()
    backend.close()
    for future in keyed + unkeyed:
        error = future.exception(PATIENCE)
        assert isinstance(error, PublishError)
        assert "in the topic" in error.message
    broker.start()


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    head = """
        import os, signal, sys, threading, time
        from kafka_pubsub.publish.writer_pool import WriterPool
        from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
        from kafka_pubsub.errors import *
        from kafka_pubsub.log.kafka.backend import KafkaBackend
        backend = KafkaBackend(sys.argv[1])
        writers = WriterPool(backend.writer)
        publisher = TopicPublisher(sys.argv[2], lambda: PublishTarget(None, 1_048_588), writers)
    """
    program = textwrap.dedent(head) + textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_process_that_ends_without_closing_flushes(broker: LocalKafka) -> None:
    name = new_topic(broker.bootstrap)
    ended = run(
        """
        for number in range(5000):
            publisher.publish(b"%d" % number, ordering_key=f"key-{number % 5}")
        """,
        broker.bootstrap,
        name,
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert "without PubSub.close" not in ended.stderr
    assert_all_once_and_in_order(broker.bootstrap, name, 5000, 5)


def test_ctrl_c_while_publishing_at_full_speed_loses_no_report(broker: LocalKafka) -> None:
    name = new_topic(broker.bootstrap)
    ended = run(
        """
        futures, publishing = [], threading.Event()

        def interrupt():  # only what publishes: not the lines of this test around it
            for _ in range(30):
                publishing.wait()
                publishing.clear()
                time.sleep(0.02)
                os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        for _ in range(30):
            try:
                publishing.set()
                while True:
                    futures.append(publisher.publish(b"x" * 100, ordering_key=f"key-{len(futures) % 7}"))
            except KeyboardInterrupt:
                pass
        interrupter.join()
        publisher.flush(30)
        print(sum(not future.done() for future in futures), sum(bool(future.exception()) for future in futures))
        publisher.close()
        writers.close()
        """,
        broker.bootstrap,
        name,
    )
    assert (ended.returncode, ended.stdout) == (0, "0 0\n"), ended.stderr


def test_a_fork_after_use_is_refused_in_the_child_and_harmless_to_the_parent(broker: LocalKafka) -> None:
    name = new_topic(broker.bootstrap)
    ended = run(
        """
        publisher.publish(b"0", ordering_key="key-0").result(30)
        child = os.fork()
        if child == 0:
            try:
                publisher.publish(b"x", ordering_key="key-0")
            except FailedPrecondition as error:
                os._exit(0 if "fork" in error.message else 2)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        publisher.publish(b"1", ordering_key="key-0").result(30)
        publisher.close()
        writers.close()
        """,
        broker.bootstrap,
        name,
    )
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
    assert_all_once_and_in_order(broker.bootstrap, name, 2, 1)
