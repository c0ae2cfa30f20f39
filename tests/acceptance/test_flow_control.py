"""Flow control on a real Kafka: how much runs at once, how much is buffered, and that a pause loses nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from kafka_pubsub import FailedPrecondition, FlowControl, InvalidArgument, Message
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

KIB = 1024


def test_max_messages_bounds_the_callbacks_at_once_over_all_keys(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            release.wait(PATIENCE)
            message.ack()

    with subscription.pull(handle, flow=FlowControl(max_messages=3), max_workers=16) as stream:
        all_stored(topic.publish(b"%d" % number, ordering_key=f"key-{number % 20}") for number in range(60))
        until(lambda: stream.stats.received == 60)
        log.wait_for(3)
        release.set()
        log.wait_for(60)
    assert log.most_at_once == 3


def test_max_messages_counts_what_was_returned_without_an_ack(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(ack_deadline=600)
    held: list[Message] = []

    def hold(message: Message) -> None:
        with log.handling(message):
            held.append(message)

    with subscription.pull(hold, flow=FlowControl(max_messages=2)) as stream:
        all_stored(topic.publish(b"x", ordering_key=f"key-{key}") for key in range(6))
        for count in (2, 4, 6):
            until(lambda count=count: len(held) == count and stream.stats.in_flight == 2)  # type: ignore[misc]
            for message in held[-2:]:
                message.ack()
        until(lambda: stream.stats.acked == 6)
    assert stream.stats.stale == 0


def test_max_bytes_bounds_what_is_buffered_and_a_pause_loses_nothing(room: Room, log: Deliveries) -> None:
    """60 MB wait in the broker; with room for 1 MiB the reader pauses, and goes on as room comes."""
    topic, subscription = room.pair()
    body = b"x" * 20 * KIB
    all_stored(topic.publish(body, ordering_key=f"key-{number % 50}") for number in range(3000))
    release = threading.Event()
    count, most = [0], [0]
    lock = threading.Lock()

    def handle(message: Message) -> None:
        release.wait(PATIENCE)
        assert len(message.data) == len(body)
        message.ack()
        with lock:
            count[0] += 1

    with subscription.pull(handle, flow=FlowControl(max_bytes=KIB * KIB)) as stream:
        until(lambda: stream.stats.paused, "a pause")
        most[0] = stream.stats.buffered_bytes
        end = time.monotonic() + 1
        while time.monotonic() < end:  # nothing more may come while nothing goes
            most[0] = max(most[0], stream.stats.buffered_bytes)
        release.set()
        while count[0] < 3000:
            most[0] = max(most[0], stream.stats.buffered_bytes)
            until(lambda seen=count[0]: count[0] > seen or count[0] == 3000)  # type: ignore[misc]
        until(lambda: not stream.stats.paused, "the end of the pause")
    assert stream.stats.acked == 3000
    # The size of messages is known after the first read, so the bound may be exceeded by a message.
    assert KIB * KIB <= most[0] < 20 * KIB * KIB, f"{most[0] / KIB / KIB} MiB"


def test_a_users_threads_run_the_callbacks(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    names: set[str] = set()

    def handle(message: Message) -> None:
        with log.handling(message):
            names.add(threading.current_thread().name)
            message.ack()

    with ThreadPoolExecutor(4, thread_name_prefix="mine") as executor:
        with subscription.pull(handle, executor=executor, max_workers=4):
            all_stored(
                topic.publish(b"%d" % number, ordering_key=f"key-{number % 10}") for number in range(500)
            )
            log.wait_for(500)
        assert executor.submit(lambda: "still usable").result(PATIENCE) == "still usable"
    assert all(name.startswith("mine") for name in names)
    assert log.by_key == {f"key-{key}": [b"%d" % each for each in range(key, 500, 10)] for key in range(10)}
    assert log.most_of_a_key == 1
    assert log.most_at_once <= 4


def test_a_users_process_pool_is_refused_and_nothing_is_left_open(room: Room) -> None:
    _, subscription = room.pair()
    with ProcessPoolExecutor(1) as executor, pytest.raises(InvalidArgument, match="process pool"):
        subscription.pull(print, executor=executor)
    assert subscription.state().members == 0


def test_a_users_executor_that_was_shut_down_ends_the_stream_and_loses_nothing(
    room: Room, log: Deliveries
) -> None:
    topic, subscription = room.pair()
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    topic.publish(b"x", ordering_key="key").result(PATIENCE)
    with (
        subscription.pull(log.ack, executor=executor) as stream,
        pytest.raises(FailedPrecondition, match="executor"),
    ):
        stream.result(PATIENCE)
    with subscription.pull(log.ack):
        log.wait_for(1)
    assert log.bodies == [b"x"]
