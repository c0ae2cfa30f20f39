"""Streams whose fetcher calls quick callbacks itself: who runs beside whom, and what is taken over.

Whether a callback is called inline is up to the pace, so nothing here depends on it; but where callbacks are quick,
as they are in these tests before something happens, most are. `walking` says so for those that have to be.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub import FlowControl, Message, PubSub
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.stream.stream import Stream
from kafka_pubsub.subscribe.workers.inline_runner import LONGEST_RUN, QUICK
from kafka_pubsub.subscribe.workers.lease_runner import HeldMessage, LeaseRunner
from kafka_pubsub.subscription import Subscription
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

#: Seconds within which a callback that takes long is found, on a busy machine: far less than PATIENCE.
SOON = 5.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, what computes is quick."""
    assert QUICK < 0.001
    monkeypatch.setattr("kafka_pubsub.subscribe.workers.inline_runner.QUICK", 0.02)


@pytest.fixture
def ps() -> Iterator[PubSub]:
    with PubSub.in_memory(MemoryBackend()) as ps:
        ps.create_topic("orders", partitions=2)
        yield ps


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True)


def publish(ps: PubSub, count: int, keys: int = 7, first: int = 0) -> None:
    topic = ps.topic("orders")
    futures = [topic.publish(b"%d" % at, ordering_key=f"k{at % keys}") for at in range(first, first + count)]
    for future in futures:
        future.result(timeout=PATIENCE)


def inline_now() -> bool:
    """Whether the thread that asks is a fetcher."""
    return "fetcher" in threading.current_thread().name


class Seen:
    """Everything that came, who ran beside whom, and a way to wait for it."""

    def __init__(self, act: Callable[[Message], object] = Message.ack) -> None:
        self.act = act
        self.by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        self.running = self.most = self.count = self.inline = 0
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self.changed:
            self.running += 1
            self.most = max(self.most, self.running)
            self.inline += inline_now()
        try:
            self.act(message)
        finally:
            with self.changed:
                self.running -= 1
                self.count += 1
                self.by_key[message.ordering_key].append(int(message.data))
                self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), f"only {self.count} came"

    def orders(self) -> bool:
        """Whether each key's messages came in order, redeliveries aside."""
        firsts = [list(dict.fromkeys(numbers)) for numbers in self.by_key.values()]
        return all(numbers == sorted(numbers) for numbers in firsts)


def settled(sub: Subscription) -> bool:
    return sub.state().lag == 0


def alive() -> Counter[str]:
    """What holds messages, by kind, once the collector was there."""
    gc.collect()
    kinds = (HeldMessage, LeaseRunner, Lease)
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))


def test_quick_callbacks_are_called_by_the_fetcher(ps: PubSub, sub: Subscription) -> None:
    seen = Seen()
    publish(ps, 100)
    with sub.pull(seen) as stream:
        seen.wait_for(lambda: seen.count == 100)
        # What was there at the start is read at once, before anything may begin, and waits for the runner.
        publish(ps, 200, first=100)
        seen.wait_for(lambda: seen.count == 300)
    assert seen.inline > 0, "nothing was called inline: these tests test nothing"
    assert seen.orders()
    assert settled(sub)
    stats = stream.stats
    assert (stats.received, stats.acked, stats.redelivered, stats.stale) == (300, 300, 0, 0)
    assert (stats.in_flight, stats.buffered_bytes) == (0, 0)


@pytest.mark.parametrize("max_workers", [2, 16])
def test_a_callback_that_blocks_holds_up_its_own_key_only(
    ps: PubSub, sub: Subscription, max_workers: int
) -> None:
    go, stuck = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        if message.data == b"0":
            stuck.set()
            assert go.wait(PATIENCE)
        message.ack()

    seen = Seen(act)
    with sub.pull(seen, max_workers=max_workers) as stream:
        publish(ps, 100)
        assert stuck.wait(PATIENCE)
        began = time.monotonic()
        publish(ps, 100, first=100)
        seen.wait_for(lambda: sum(map(len, seen.by_key.values())) >= 200 - 29)
        assert time.monotonic() - began < SOON
        assert not seen.by_key["k0"]
        assert seen.running == 1
        go.set()
        seen.wait_for(lambda: seen.count == 200)
        assert seen.most <= max_workers
    assert seen.orders()
    assert (stream.stats.acked, stream.stats.redelivered, stream.stats.stale) == (200, 0, 0)
    assert settled(sub)


def test_callbacks_that_become_slower_spread_over_the_workers(ps: PubSub, sub: Subscription) -> None:
    """None stands for long, all of them together do: 300 at 10 ms each would hold up the fetcher for seconds."""
    slow = threading.Event()

    def act(message: Message) -> None:
        if slow.is_set():
            time.sleep(LONGEST_RUN / 20)
        message.ack()

    seen = Seen(act)
    with sub.pull(seen) as stream:
        publish(ps, 2000, keys=50)
        seen.wait_for(lambda: seen.count == 2000)
        slow.set()
        publish(ps, 400, keys=50, first=2000)
        seen.wait_for(lambda: seen.most > 1)
        seen.wait_for(lambda: seen.count == 2400)
    assert seen.orders()
    assert (stream.stats.acked, stream.stats.redelivered) == (2400, 0)


def test_one_worker_is_one_callback_on_any_thread(ps: PubSub, sub: Subscription) -> None:
    """Also across take-overs, redeliveries and retries."""
    failed: set[bytes] = set()

    def act(message: Message) -> None:
        number = int(message.data)
        if number % 50 == 7 and message.data not in failed:
            failed.add(message.data)
            if number % 100 == 7:
                message.nack()
                return
            raise RuntimeError("the handler's own")
        if number % 90 == 11:
            message.extend(60)
        if number % 130 == 70:
            time.sleep(0.2)  # taken over
        message.ack()

    seen = Seen(act)
    with sub.pull(seen, max_workers=1) as stream:
        for first in range(0, 400, 100):
            publish(ps, 100, first=first)
        seen.wait_for(lambda: seen.count == 400 + len(failed) == 408)
    assert seen.most == 1
    assert seen.orders()
    assert (stream.stats.acked, stream.stats.redelivered) == (400, 8)
    assert settled(sub)


def test_one_worker_is_one_callback_when_an_old_callback_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group has taken its partitions away and given them back; its lease is over, it isn't."""
    monkeypatch.setattr(
        "kafka_pubsub.subscribe.workers.inline_runner.PENALTY", 0.0
    )  # the fetcher would walk again at once
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as own:
        own.create_topic("orders", partitions=2)
        sub = own.create_subscription("billing", "orders", message_ordering=True)
        go, stuck = threading.Event(), threading.Event()

        def act(message: Message) -> None:
            if message.data == b"0" and not stuck.is_set():
                stuck.set()
                assert go.wait(PATIENCE)
            message.ack()

        seen = Seen(act)
        with sub.pull(seen, max_workers=1) as stream:
            publish(own, 1)
            assert stuck.wait(PATIENCE)
            backend.cluster.evict("billing")
            publish(own, 50, first=1)
            until(lambda: stream.stats.received >= 52)
            assert seen.running == 1
            go.set()
            seen.wait_for(lambda: seen.count == 52)
            assert seen.most == 1
            assert stream.stats.stale == 1, "its lease was over: the ack came too late"


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_messages_are_out_than_allowed(ps: PubSub, sub: Subscription, most: int) -> None:
    kept: list[Message] = []
    seen = Seen(kept.append)
    publish(ps, 40, keys=40)
    with sub.pull(seen, flow=FlowControl(max_messages=most)) as stream:
        for done in range(40):
            seen.wait_for(lambda done=done: seen.count > done)  # type: ignore[misc]
            assert len(kept) - done <= most
            assert stream.stats.in_flight <= most
            kept[done].ack()
        seen.wait_for(lambda: seen.count == 40)
    assert (stream.stats.acked, stream.stats.redelivered, stream.stats.stale) == (40, 0, 0)


def test_what_is_kept_is_acked_by_another_thread_in_order(ps: PubSub, sub: Subscription) -> None:
    """An ack on another thread may come at any moment of the walk."""
    line: list[Message | None] = []
    there = threading.Semaphore(0)

    def act(message: Message) -> None:
        if int(message.data) % 5 == 0:
            line.append(message)
            there.release()
        else:
            message.ack()

    def ack_all() -> None:
        while there.acquire(timeout=PATIENCE):
            if (message := line.pop(0)) is None:
                return
            message.ack()

    acker = threading.Thread(target=ack_all, daemon=True)
    acker.start()
    seen = Seen(act)
    with sub.pull(seen) as stream:
        publish(ps, 1000, keys=31)
        seen.wait_for(lambda: seen.count == 1000)
        line.append(None)
        there.release()
        acker.join(PATIENCE)
    assert seen.orders()
    assert (stream.stats.acked, stream.stats.redelivered, stream.stats.stale) == (1000, 0, 0)
    assert settled(sub)


def test_an_ack_id_from_an_inline_callback_acks_later(ps: PubSub, sub: Subscription) -> None:
    ids: list[str] = []
    seen = Seen(lambda message: ids.append(message.ack_id))
    with sub.pull(seen) as stream:
        publish(ps, 5, keys=5)
        seen.wait_for(lambda: seen.count == 5)
        sub.acknowledge(ids)
    assert (stream.stats.acked, stream.stats.stale) == (5, 0)


# Closing


def test_a_callback_may_close_its_own_stream_while_it_is_run_inline(ps: PubSub, sub: Subscription) -> None:
    streams: list[Stream] = []
    there = threading.Event()

    def act(message: Message) -> None:
        assert there.wait(PATIENCE)
        message.ack()
        if message.data == b"20":
            streams[0].close()

    seen = Seen(act)
    publish(ps, 60)
    streams.append(sub.pull(seen))
    there.set()
    streams[0].result(timeout=PATIENCE)
    seen.wait_for(lambda: seen.running == 0)
    rest = Seen()
    with sub.pull(rest):
        until(lambda: settled(sub))
    came = {number for each in (seen, rest) for numbers in each.by_key.values() for number in numbers}
    assert came == set(range(60))


def test_closing_lets_the_running_callback_end_and_loses_nothing(ps: PubSub, sub: Subscription) -> None:
    go, stuck = threading.Event(), threading.Event()

    def act(message: Message) -> None:
        if message.data == b"30":
            stuck.set()
            assert go.wait(PATIENCE)
        message.ack()

    seen = Seen(act)
    publish(ps, 300)
    stream = sub.pull(seen)
    assert stuck.wait(PATIENCE)
    assert stream.cancel()
    go.set()
    stream.result(timeout=PATIENCE)
    assert seen.running == 0
    rest = Seen()
    with sub.pull(rest) as second:
        rest.wait_for(lambda: seen.count + rest.count >= 300)
    assert seen.count + rest.count == 300, "what was acked before the close was committed"
    assert (stream.stats.redelivered, second.stats.redelivered) == (0, 0)
    assert settled(sub)


def test_closing_busy_streams_again_and_again_loses_nothing(ps: PubSub, sub: Subscription) -> None:
    """At any moment of a walk: between records, between holders, at its end."""
    publish(ps, 3000, keys=61)
    seen = Seen()
    for _ in range(20):
        before = seen.count
        with sub.pull(seen) as stream:
            seen.wait_for(lambda before=before: seen.count > before or settled(sub))  # type: ignore[misc]
        assert stream.exception(0) is None
    with sub.pull(seen):
        seen.wait_for(lambda: seen.count >= 3000)
    assert seen.count == 3000
    assert seen.orders()


# Whatever a callback may use


def test_a_callback_may_publish_flush_and_receive(ps: PubSub, sub: Subscription) -> None:
    ps.create_topic("answers", partitions=1)
    answers = ps.create_subscription("answers", "answers")
    got: list[bytes] = []

    def act(message: Message) -> None:
        topic = ps.topic("answers")
        topic.publish(b"re " + message.data).result(timeout=PATIENCE)
        topic.flush()
        for answer in answers.receive(1, timeout=PATIENCE):
            got.append(answer.data)
            answer.ack()
        assert sub.state().subscription == "billing"
        message.ack()

    seen = Seen(act)
    with sub.pull(seen) as stream:
        publish(ps, 10)
        seen.wait_for(lambda: seen.count == 10)
    assert sorted(got) == [b"re %d" % at for at in range(10)]
    assert (stream.stats.acked, stream.stats.redelivered) == (10, 0)


# Nothing stays behind


def test_threads_end_and_messages_die(ps: PubSub, sub: Subscription) -> None:
    before = alive()
    threads: set[threading.Thread] = set()

    def act(message: Message) -> None:
        threads.add(threading.current_thread())
        if message.data == b"30":
            time.sleep(0.3)  # taken over
        if message.data == b"100":
            message.extend(60)
        if message.data == b"150" and message.delivery_attempt == 1:
            message.nack()
        else:
            message.ack()

    seen = Seen(act)
    with sub.pull(seen):
        publish(ps, 200)
        seen.wait_for(lambda: seen.count == 201)
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread.name
    until(lambda: not any(each.name.startswith("kafka_pubsub-billing") for each in threading.enumerate()))
    assert alive() == before
