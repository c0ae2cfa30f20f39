"""Streams over memory: how they end, who is told, and what a failure of the log makes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub, PubSubError
from kafka_pubsub.log.joining import closing
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.inbox import Inbox
from kafka_pubsub.subscribe.partition.effects import StoreMoves
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.stream import runner
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.stream.stream import Stream
from kafka_pubsub.subscribe.takeover.log_ends import LogEnds
from kafka_pubsub.subscription import Subscription
from tests.partition_ids import P
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE


class Room:
    """A topic with a subscription."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.ps = PubSub.in_memory(self.backend)
        self.topic = self.ps.create_topic("orders", partitions=2)
        self.sub: Subscription = self.ps.create_subscription("billing", "orders", message_ordering=True)

    def publish(self, *keys: str) -> None:
        for key in keys:
            self.topic.publish(key.encode(), ordering_key=key).result(timeout=PATIENCE)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.ps.close()


def acked(message: Message) -> None:
    message.ack()


def test_an_open_stream_has_no_result_yet(room: Room) -> None:
    with room.sub.pull(acked) as stream:
        assert not stream.done()
        assert "open" in repr(stream)
        with pytest.raises(TimeoutError, match="goes on"):
            stream.result(timeout=0)
        with pytest.raises(TimeoutError):
            stream.exception(timeout=0.01)
    assert stream.done()
    assert "ended" in repr(stream)
    stream.result(timeout=0)
    assert stream.exception(timeout=0) is None


def test_closing_twice_and_from_many_threads_closes_once(room: Room) -> None:
    told: list[Stream] = []
    stream = room.sub.pull(acked)
    stream.add_done_callback(told.append)
    threads = [threading.Thread(target=stream.close) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    stream.close()
    assert told == [stream]


def test_cancelling_returns_at_once_and_the_end_follows(room: Room) -> None:
    begun, go = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        message.ack()

    stream = room.sub.pull(handle)
    room.publish("a")
    assert begun.wait(PATIENCE)
    assert stream.cancel()
    assert not stream.done(), "its callback still runs"
    go.set()
    stream.result(timeout=PATIENCE)
    assert not stream.cancel()
    assert room.sub.state().lag == 0, "the ack of the running handler was committed"


def test_who_listens_is_reported_once_who_left_is_not_and_late_ones_are_reported_at_once(room: Room) -> None:
    stream = room.sub.pull(acked)
    told: list[str] = []

    def never(each: Stream) -> None:
        told.append("never")

    def once(each: Stream) -> None:
        told.append("once")

    stream.add_done_callback(once)
    stream.add_done_callback(never)
    stream.remove_done_callback(never)
    stream.remove_done_callback(never)
    stream.close()
    stream.add_done_callback(lambda each: told.append("late"))
    stream.remove_done_callback(once)
    assert told == ["once", "late"]


def test_a_callback_that_does_not_end_is_named_and_its_message_comes_again(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        go.wait(PATIENCE)
        message.ack()

    stream = room.sub.pull(handle)
    room.publish("a")
    assert begun.wait(PATIENCE)
    stream.close(timeout=0.01)
    assert stream.done()
    assert "callbacks still run" in caplog.text
    go.set()
    (message,) = room.sub.receive(1, timeout=PATIENCE)
    assert message.data == b"a"
    message.ack()


def test_no_callback_begins_once_the_acks_of_the_final_commit_are_taken(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ack would be in no commit, and another member would get the message again."""
    begun, first, go, revoking = list[bytes](), threading.Event(), threading.Event(), threading.Event()
    take_reports = Inbox.take_reports

    def handle(message: Message) -> None:
        begun.append(message.data)
        first.set()
        go.wait(PATIENCE)
        message.ack()

    def take_and_go_on(self: Inbox, now: float) -> None:
        take_reports(self, now)
        if revoking.is_set() and not go.is_set():
            go.set()
            until(lambda: bool(self._releases))  # the worker has ended its lease

    def revoke(stream_runner: StreamRunner) -> None:
        revoking.set()
        stream_runner._revoke([P[0], P[1]], stream_runner.clock())

    room.publish("a", "a", "a")
    monkeypatch.setattr(Inbox, "take_reports", take_and_go_on)
    with room.sub.pull(handle) as stream:
        assert first.wait(PATIENCE)
        stream_runner = stream._runner
        stream_runner.ask(partial(revoke, stream_runner))
        assert begun == [b"a"]


def test_a_callback_may_close_its_own_stream(room: Room) -> None:
    streams: list[Stream] = []
    there = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        assert there.wait(PATIENCE)
        streams[0].close()

    streams.append(room.sub.pull(handle))
    there.set()
    room.publish("a")
    streams[0].result(timeout=PATIENCE)
    # Its own acks may come again: an ack is booked when its callback has ended, and this callback waits for close.
    assert room.sub.state().lag <= 1


class Meeting:
    """Callbacks that begin together, ack, and close streams."""

    def __init__(self, parties: int) -> None:
        self.streams: list[Stream] = []
        self.open, self._together = threading.Event(), threading.Barrier(parties)
        self.closed = threading.Semaphore(0)

    def close(self, message: Message, which: int = 0) -> None:
        message.ack()
        self._together.wait(PATIENCE)
        assert self.open.wait(PATIENCE)
        self.streams[which].close(PATIENCE)
        self.closed.release()


def test_callbacks_that_close_their_stream_together_do_not_wait_for_each_other(room: Room) -> None:
    meeting, began = Meeting(2), time.monotonic()
    room.publish("a", "b")
    meeting.streams.append(room.sub.pull(meeting.close))
    meeting.open.set()
    assert all(meeting.closed.acquire(timeout=2 * PATIENCE) for _ in range(2))
    assert time.monotonic() - began < PATIENCE / 2


def test_callbacks_that_close_each_others_streams_do_not_wait_for_each_other(room: Room) -> None:
    meeting, began = Meeting(2), time.monotonic()
    room.publish("a")
    for which in (1, 0):
        sub = room.ps.create_subscription(f"other-{which}", "orders", start="earliest")
        meeting.streams.append(sub.pull(partial(meeting.close, which=which)))
    meeting.open.set()
    assert all(meeting.closed.acquire(timeout=2 * PATIENCE) for _ in range(2))
    assert time.monotonic() - began < PATIENCE / 2


def test_a_callback_that_closes_something_else_in_a_moment_is_waited_for(room: Room) -> None:
    """Its ack is committed, and the close says truly that all callbacks have ended."""
    begun, go = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        with closing(threading.current_thread()):  # as the end of `with PubSub(...)` does
            begun.set()
            assert go.wait(PATIENCE)
        message.ack()

    room.publish("a")
    stream = room.sub.pull(handle)
    assert begun.wait(PATIENCE)
    threading.Timer(0.3, go.set).start()
    stream.close()
    assert (stream._left, stream.stats.acked) == (0, 1)


@pytest.mark.parametrize("wholly", [False, True])
def test_a_callback_on_an_executor_may_close_its_stream_or_its_pubsub(room: Room, wholly: bool) -> None:
    meeting, began = Meeting(1), time.monotonic()

    def handle(message: Message) -> None:
        if wholly:
            room.ps.close()
        meeting.close(message)

    with ThreadPoolExecutor(2) as executor:
        room.publish("a")
        meeting.streams.append(room.sub.pull(handle, executor=executor))
        meeting.open.set()
        assert meeting.closed.acquire(timeout=2 * PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2


def test_what_an_executor_drops_ends_the_stream_and_comes_to_another(room: Room) -> None:
    begun, go = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        message.ack()

    executor = ThreadPoolExecutor(1)
    room.publish("a")
    stream = room.sub.pull(handle, executor=executor)
    assert begun.wait(PATIENCE)
    room.publish("b")
    until(lambda: stream.stats.in_flight == 2)
    executor.shutdown(wait=False, cancel_futures=True)
    go.set()
    with pytest.raises(FailedPrecondition, match="takes no more work"):
        stream.result(PATIENCE)
    found = {message.data for message in room.sub.receive(2, timeout=PATIENCE)}
    assert b"b" in found


def test_who_is_told_of_the_end_may_close_the_stream(room: Room) -> None:
    stream = room.sub.pull(acked)
    stream.add_done_callback(Stream.close)
    closing = threading.Thread(target=stream.close, daemon=True)
    closing.start()
    closing.join(PATIENCE / 4)
    assert not closing.is_alive()


def test_the_checkpoint_of_a_close_begins_while_the_fetcher_still_reads(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, in_time = threading.Event(), list[bool]()
    write, leave = RetryIO.write_moves, LogEnds.leave

    def write_moves(self: RetryIO, number: PartitionId, epoch: int, moves: StoreMoves) -> None:
        began.set()
        write(self, number, epoch, moves)

    def leave_later(self: LogEnds, *, in_order: bool) -> None:
        in_time.append(began.wait(PATIENCE))
        leave(self, in_order=in_order)

    monkeypatch.setattr(runner, "TICK", 10 * PATIENCE)  # only a commit or a request brings a tick
    with room.sub.pull(acked) as stream:
        room.publish("a")
        until(lambda: stream.stats.commits >= 3)  # the first of each partition, and the ack's
        monkeypatch.setattr(RetryIO, "write_moves", write_moves)
        monkeypatch.setattr(LogEnds, "leave", leave_later)
    assert in_time == [True]


def test_an_error_inside_the_block_closes_the_stream_and_goes_on(room: Room) -> None:
    with pytest.raises(ZeroDivisionError), room.sub.pull(acked) as stream:
        raise ZeroDivisionError
    assert stream.done()


def test_stats_tell_what_was_done(room: Room) -> None:
    nacked, kept, done = threading.Event(), threading.Event(), threading.Semaphore(0)
    messages: list[Message] = []

    def handle(message: Message) -> None:
        if message.data == b"keep":
            messages.append(message)
            kept.set()
        elif message.data == b"again" and message.delivery_attempt == 1:
            nacked.set()
            message.nack(delay=0)
        else:
            message.ack()
            message.ack()
            done.release()

    with room.sub.pull(handle) as stream:
        room.publish("keep", "again", "plain")
        assert nacked.wait(PATIENCE)
        assert kept.wait(PATIENCE)
        for _ in range(2):
            assert done.acquire(timeout=PATIENCE)
    stats = stream.stats
    assert (stats.received, stats.acked, stats.redelivered, stats.stale) == (3, 2, 1, 2)
    assert stats.commits >= 1
    assert (stats.in_flight, stats.partitions, stats.paused) == (0, (), ())
    messages[0].ack()  # too late: the message was given back when the stream ended


def test_a_log_that_was_truncated_ends_the_stream_with_a_clear_error(room: Room) -> None:
    """The group stands beyond the end: that isn't the log that was read."""
    room.backend.admin.set_positions(
        "billing", {TopicPartition("orders", 0): 50, TopicPartition("orders", 1): 0}
    )
    stream = room.sub.pull(acked)
    with pytest.raises(FailedPrecondition, match="stands at offset 50"):
        stream.result(timeout=PATIENCE)
    assert isinstance(stream.exception(timeout=0), PubSubError)


def test_an_ended_stream_leaves_the_group(room: Room) -> None:
    stream = room.sub.pull(acked)
    room.publish("a")
    stream.close()
    assert room.backend.admin.group_members("billing") == 0


def test_partitions_of_lanes_are_counted_as_partitions_of_the_topic() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=2, priorities=2)
        sub = ps.create_subscription("billing", "orders")
        ps.topic("orders").publish(b"urgent", priority=1).result(PATIENCE)
        with sub.pull(Message.ack) as stream:
            until(lambda: stream.stats.acked == 1, patience=PATIENCE)
            assert stream.stats.partitions == (0, 1)
