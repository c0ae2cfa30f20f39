"""Idle streams: how long their threads wait, and that nothing waits for them."""

from __future__ import annotations

import threading
import time

import pytest

from kafka_pubsub import Message, PubSub
from kafka_pubsub.log import clocks
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.subscribe.idle_waits import AFTER, READ_WAIT, TICK_WAIT, IdleWaits
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from tests.support import until


def idle(wake_at: float | None = None) -> IdleWaits:
    """A stream that was busy at 0 and isn't any more."""
    idling = IdleWaits()
    idling.swept(0.0, busy=True, wake_at=None)
    idling.swept(0.1, busy=False, wake_at=wake_at)
    return idling


def test_both_threads_wait_longer_when_nothing_has_happened_for_a_while() -> None:
    assert idle().sleep(AFTER / 2, 0.15) == 0.15
    assert idle().read_wait(AFTER / 2, 0.05) == 0.05
    assert idle().sleep(AFTER, 0.15) == TICK_WAIT
    assert idle().read_wait(AFTER, 0.05) == READ_WAIT


def test_what_is_due_is_not_slept_through() -> None:
    assert idle(wake_at=AFTER + 0.2).sleep(AFTER, 0.15) == pytest.approx(0.2)
    assert idle(wake_at=AFTER + 0.2).read_wait(AFTER, 0.05) == pytest.approx(0.2)
    assert idle(wake_at=AFTER - 1).sleep(AFTER, 0.15) == 0.0
    assert idle(wake_at=AFTER - 1).read_wait(AFTER, 0.05) == 0.05, (
        "the reader would spin until the runner has done it"
    )


def test_a_runner_that_sleeps_is_woken_when_another_thread_has_done_its_work() -> None:
    idling = idle()
    idling.sleep(AFTER, 0.15)
    assert not idling.oversleeps(AFTER + 0.1, 0.15)
    idling.swept(AFTER + 0.1, busy=True, wake_at=None)
    assert idling.oversleeps(AFTER + 0.1, 0.15)
    idling.sleep(AFTER + 0.1, 0.15)
    assert not idling.oversleeps(AFTER + 0.2, 0.15)


def test_a_process_that_stood_still_is_noticed() -> None:
    assert 2 * TICK_WAIT < clocks.AWAY


def test_an_idle_stream_sweeps_and_reads_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps: list[StreamRunner] = []
    reads: list[float] = []
    step, read = StreamRunner.step, MemoryReader.read

    def counted_step(
        stream_runner: StreamRunner, now: float, *, hand_out: bool = True, inline: bool = False
    ) -> None:
        sweeps.append(stream_runner)
        step(stream_runner, now, hand_out=hand_out, inline=inline)

    def counted_read(reader: MemoryReader, most: int, timeout: float) -> object:
        reads.append(timeout)
        return read(reader, most, timeout)

    monkeypatch.setattr(StreamRunner, "step", counted_step)
    monkeypatch.setattr(MemoryReader, "read", counted_read)
    with PubSub.in_memory(MemoryBackend()) as ps:
        topic = ps.create_topic("orders", partitions=50)
        acked: list[bytes] = []

        def ack(message: Message) -> None:
            message.ack()
            acked.append(message.data)

        with ps.create_subscription("billing", "orders").pull(ack):
            topic.publish(b"first").result(20)
            until(lambda: acked, "the first message")
            until(lambda: reads and reads[-1] == READ_WAIT, "an idle stream")
            sweeps.clear()
            reads.clear()
            began = time.monotonic()
            threading.Event().wait(2.0)
            swept, read_again = len(sweeps), len(reads)
            took = time.monotonic() - began
            assert swept <= 2 * took, "a busy one sweeps 6 times a second"
            assert read_again <= 5 * took, "a busy one reads 20 times a second"
            topic.publish(b"second").result(20)
            until(lambda: len(acked) == 2, "the message that ends the read at once")


def test_a_message_that_falls_due_while_its_stream_is_idle_is_delivered_and_committed() -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as ps:
        topic = ps.create_topic("orders")
        attempts: list[int] = []

        def nack_once(message: Message) -> None:
            attempts.append(message.delivery_attempt)
            if message.delivery_attempt == 1:
                message.nack(delay=2 * AFTER)
            else:
                message.ack()

        def is_committed() -> bool:
            stored = backend.admin.group_offsets("billing", "orders.sub.billing.retry")
            return any(each.offset for each in stored.values())

        subscription = ps.create_subscription("billing", "orders", message_ordering=True)
        with subscription.pull(nack_once):
            topic.publish(b"first", ordering_key="k").result(20)
            until(lambda: attempts == [1, 2], "the second attempt")
            until(is_committed, "its commit")
