"""A subscriber over memory: its callbacks and executors, ack ids, bad arguments, and the copy of its positions."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from kafka_pubsub import FailedPrecondition, FlowControl, InvalidArgument, Message, PubSub, UnknownAck
from kafka_pubsub import subscriber as module
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import AckId
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.stream.stream import CLOSE_TIMEOUT
from kafka_pubsub.subscribe.takeover.listener import AssignmentListener
from kafka_pubsub.subscription import Subscription
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE
from tests.unit.subscribe.workers.walking import acked


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def cluster(backend: MemoryBackend) -> MemoryCluster:
    return backend.cluster


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=4)
        yield ps


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    return ps.create_subscription("billing", "orders", message_ordering=True)


def publish(ps: PubSub, count: int, keys: int = 7) -> None:
    topic = ps.topic("orders")
    futures = [topic.publish(b"%d" % at, ordering_key=f"k{at % keys}") for at in range(count)]
    for future in futures:
        future.result(timeout=PATIENCE)


class Ledger:
    """Everything that came, by key; waits for a number of acks."""

    def __init__(self) -> None:
        self.by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        self.busy: set[str | None] = set()
        self.overlaps = 0
        self.count = 0
        self.changed = threading.Condition()

    def begin(self, message: Message) -> None:
        with self.changed:
            self.overlaps += message.ordering_key in self.busy
            self.busy.add(message.ordering_key)

    def end(self, message: Message) -> None:
        with self.changed:
            self.busy.discard(message.ordering_key)
            self.by_key[message.ordering_key].append(int(message.data))
            message.ack()
            self.count += 1
            self.changed.notify_all()

    def __call__(self, message: Message) -> None:
        self.begin(message)
        self.end(message)

    def many(self, messages: list[Message]) -> None:
        for message in messages:
            self(message)

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, PATIENCE), f"only {self.count} came"

    def check(self) -> None:
        assert not self.overlaps, "two of a key at a time"
        assert all(offsets == sorted(offsets) for offsets in self.by_key.values())


Pull = Callable[[Subscription, Ledger], Any]


def pull_on_an_executor(sub: Subscription, ledger: Ledger) -> Any:
    return sub.pull(ledger, executor=ThreadPoolExecutor(4), max_workers=4)


@pytest.mark.parametrize(
    "pull",
    [
        lambda sub, ledger: sub.pull(ledger),
        lambda sub, ledger: sub.pull(ledger, max_workers=1),
        lambda sub, ledger: sub.pull(ledger, flow=FlowControl(max_messages=1)),
        pull_on_an_executor,
        lambda sub, ledger: sub.pull_batch(
            ledger.many, max_messages=5, max_latency=timedelta(milliseconds=5)
        ),
        lambda sub, ledger: sub.pull_batch(ledger.many, max_messages=1, max_latency=0),
    ],
    ids=["threads", "one thread", "one message", "executor", "batches", "batches of one"],
)
def test_every_message_comes_once_and_each_key_in_its_order(
    ps: PubSub, sub: Subscription, pull: Pull
) -> None:
    ledger = Ledger()
    with pull(sub, ledger) as stream:
        publish(ps, 300)
        ledger.wait_for(300)
    ledger.check()
    assert ledger.count == 300
    assert (stream.stats.acked, stream.stats.redelivered) == (300, 0)
    assert sub.state().lag == 0


def test_failures_change_nothing_about_the_order(ps: PubSub, sub: Subscription) -> None:
    ledger = Ledger()
    failed: set[bytes] = set()

    def handle(message: Message) -> None:
        ledger.begin(message)
        if int(message.data) % 5 == 0 and message.data not in failed:
            failed.add(message.data)
            with ledger.changed:
                ledger.busy.discard(message.ordering_key)
            if int(message.data) % 10:
                raise RuntimeError("on purpose")
            message.nack()
        else:
            ledger.end(message)

    with sub.pull(handle) as stream:
        publish(ps, 100)
        ledger.wait_for(100)
    ledger.check()
    assert stream.stats.redelivered == 20


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda sub: sub.pull("no function"), "callback must be a function"),
        (lambda sub: sub.pull_batch(None), "callback must be a function"),
        (lambda sub: sub.pull(print, max_workers=0), "max_workers must be from 1"),
        (lambda sub: sub.pull(print, max_workers=10_001), "max_workers must be from 1"),
        (lambda sub: sub.pull_batch(print, max_messages=0), "max_messages must be from 1"),
        (lambda sub: sub.pull_batch(print, max_latency=-1), "max_latency must be from 0"),
        (lambda sub: sub.pull_batch(print, max_latency=timedelta(hours=1)), "max_latency must be from 0"),
        (lambda sub: sub.receive(0), "max_messages must be from 1"),
        (lambda sub: sub.receive(1, timeout=-1), "timeout must not be negative"),
        (lambda sub: sub.acknowledge("one string"), "must be a list of ack ids"),
        (lambda sub: sub.modify_ack_deadline(["x"], 601), "seconds must be from 0 to 600"),
        (lambda sub: sub.modify_ack_deadline(["x"], -1), "seconds must be from 0 to 600"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_opened(
    sub: Subscription, backend: MemoryBackend, call: Callable[[Any], object], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        call(sub)
    assert backend.admin.group_members("billing") == 0


# Synchronous pull


def test_what_was_received_is_acked_by_id(ps: PubSub, sub: Subscription) -> None:
    publish(ps, 6, keys=6)
    messages: list[Message] = []
    while len(messages) < 6:
        messages += sub.receive(6, timeout=PATIENCE)
    sub.acknowledge([message.ack_id for message in messages])
    ps.close()


def test_polling_without_waiting_finds_what_is_there(ps: PubSub, sub: Subscription) -> None:
    sub.receive(1, timeout=0)
    publish(ps, 3, keys=3)
    got: list[Message] = []
    for _ in range(1000):
        got += sub.receive(3, timeout=0)
        if len(got) == 3:
            break
    assert sorted(message.data for message in got) == [b"0", b"1", b"2"]


def test_several_threads_receive_each_message_once(ps: PubSub, sub: Subscription) -> None:
    got: list[bytes] = []
    stop = threading.Event()
    lock = threading.Lock()

    def receive() -> None:
        while not stop.is_set():
            for message in sub.receive(3, timeout=0.2):
                with lock:
                    got.append(message.data)
                    if len(got) >= 60:
                        stop.set()
                message.ack()

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    publish(ps, 60, keys=60)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(got, key=int) == [b"%d" % at for at in range(60)]


def test_ids_that_are_not_ours_are_refused_after_the_others_were_acked(ps: PubSub, sub: Subscription) -> None:
    publish(ps, 1)
    (message,) = sub.receive(1, timeout=PATIENCE)
    ours = AckId.parse(message.ack_id)
    foreign = str(ours._replace(process=ours.process ^ 1))
    for wrong, words in (("nonsense", "not an ack id"), (foreign, "another process"), ("", "not an ack id")):
        with pytest.raises(UnknownAck, match=words):
            sub.acknowledge([wrong, message.ack_id])
    assert message._state, "ours was acked"


def test_a_second_ack_by_id_is_counted_not_refused(ps: PubSub, sub: Subscription) -> None:
    publish(ps, 1)
    (message,) = sub.receive(1, timeout=PATIENCE)
    for _ in range(3):
        sub.acknowledge([message.ack_id])
    never_asked_for = AckId.parse(message.ack_id)._replace(offset=99)
    sub.acknowledge([str(never_asked_for)])


def test_a_deadline_of_nothing_is_a_nack(ps: PubSub, sub: Subscription) -> None:
    publish(ps, 1)
    (message,) = sub.receive(1, timeout=PATIENCE)
    sub.modify_ack_deadline([message.ack_id], 0)
    (again,) = sub.receive(1, timeout=PATIENCE)
    assert (again.data, again.delivery_attempt) == (b"0", 2)
    again.ack()


def test_the_register_of_ack_ids_forgets_what_can_not_be_acked_any_more(
    ps: PubSub, sub: Subscription
) -> None:
    subscriber = module.Subscriber(MemoryBackend(), lambda: pytest.fail("not asked for"))
    publish(ps, 30, keys=30)
    messages: list[Message] = []
    while len(messages) < 30:
        messages += sub.receive(30, timeout=PATIENCE)
    for at, message in enumerate(messages):
        subscriber._handed_out(str(at), message)
        if at % 3 == 0:
            message.ack()
        elif at % 3 == 1:
            message._sink.withdrawn = True  # type: ignore[attr-defined]
    subscriber._registry_limit = 30
    subscriber._handed_out("one more", messages[2])
    assert subscriber._registry.keys() == {str(at) for at in range(2, 30, 3)} | {"one more"}
    assert subscriber._registry_limit == module.REGISTRY


# Closing


def test_at_the_end_the_positions_are_in_the_catalog(
    ps: PubSub, sub: Subscription, backend: MemoryBackend
) -> None:
    before = dict(backend.catalog.subscriptions()["billing"].positions)
    ledger = Ledger()
    with sub.pull(ledger):
        publish(ps, 40)
        ledger.wait_for(40)
    after = backend.catalog.subscriptions()["billing"].positions
    assert sum(after.values()) - sum(before.values()) == 40
    committed = backend.admin.group_offsets("billing", "orders")
    assert {number: each.offset for number, each in committed.items()} == after


def test_closing_does_not_wait_for_a_catalog_that_does_not_answer(
    ps: PubSub, sub: Subscription, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COPY_WAIT", 0.05)
    publish(ps, 10)
    ledger = Ledger()
    stream = sub.pull(ledger)
    ledger.wait_for(10)
    asked, answer = threading.Event(), threading.Event()
    ask = backend.catalog.subscriptions

    def hang() -> Mapping[str, SubscriptionRecord]:
        asked.set()
        assert answer.wait(PATIENCE)
        return ask()

    monkeypatch.setattr(backend.catalog, "subscriptions", hang)
    stream.close()  # for ever, if it waited
    assert asked.is_set()
    assert stream.done()
    answer.set()
    for thread in threading.enumerate():
        if thread.name == "kafka_pubsub-copy":
            thread.join(PATIENCE)
    assert sum(ask()["billing"].positions.values()) == 10  # it was only late


def test_a_close_that_has_waited_for_the_broker_hardly_waits_for_the_catalog(
    ps: PubSub, sub: Subscription, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin_long_ago(self: AssignmentListener) -> None:
        self._leaving_since = time.monotonic() - 2 * PATIENCE

    monkeypatch.setattr(AssignmentListener, "begin_leaving", begin_long_ago)
    monkeypatch.setattr(module, "COPY_WAIT", PATIENCE)
    publish(ps, 10)
    ledger = Ledger()
    stream = sub.pull(ledger)
    ledger.wait_for(10)
    answer = threading.Event()
    monkeypatch.setattr(backend.catalog, "subscriptions", lambda: answer.wait(PATIENCE) and {})
    began = time.monotonic()
    stream.close()
    answer.set()
    assert time.monotonic() - began < PATIENCE / 2


def test_an_idle_group_that_was_forgotten_goes_on_from_the_copy(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    ledger = Ledger()
    with sub.pull(ledger):
        publish(ps, 20)
        ledger.wait_for(20)
    cluster.forget_offsets("billing")
    with sub.pull(ledger):
        publish(ps, 10)
        ledger.wait_for(30)
    assert ledger.count == 30


def test_the_streams_of_a_pubsub_close_at_the_same_time(
    ps: PubSub, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3)
    begin_nothing_more = StreamRunner.begin_nothing_more

    def stop_together(self: StreamRunner) -> None:
        together.wait(PATIENCE)
        begin_nothing_more(self)

    monkeypatch.setattr(StreamRunner, "begin_nothing_more", stop_together)
    other = ps.create_subscription("shipping", "orders")
    streams = [sub.pull(print), sub.pull(print), other.pull(print)]
    ps.close()
    assert all(stream.done() for stream in streams)
    assert all(stream.exception() is None for stream in streams)


def test_a_callback_may_close_its_pubsub_with_several_streams(ps: PubSub, sub: Subscription) -> None:
    began, closed = time.monotonic(), threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        ps.close()
        closed.set()

    ps.create_subscription("shipping", "orders").pull(acked)
    sub.pull(handle)
    publish(ps, 1)
    assert closed.wait(PATIENCE)
    assert time.monotonic() - began < CLOSE_TIMEOUT / 2, "or it has waited for itself"


def test_a_closed_pubsub_pulls_nothing_more(ps: PubSub, sub: Subscription) -> None:
    stream = sub.pull(print)
    ps.close()
    assert stream.done()
    with pytest.raises(FailedPrecondition, match="closed"):
        sub.pull(print)
    with pytest.raises(FailedPrecondition, match="closed"):
        sub.receive(1, timeout=0)


def test_a_pull_beside_a_close_leaves_no_stream_open(
    ps: PubSub, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog answers slowly, and the close is through when the pull goes on."""
    look, before = module.Subscriber._layout_of, threading.active_count()

    def close_meanwhile(subscriber: module.Subscriber, record: SubscriptionRecord) -> Layout:
        thread = threading.Thread(target=ps.close)
        thread.start()
        thread.join(PATIENCE)
        return look(subscriber, record)

    monkeypatch.setattr(module.Subscriber, "_layout_of", close_meanwhile)
    with pytest.raises(FailedPrecondition, match="closed"):
        sub.pull(print)
    until(lambda: threading.active_count() <= before, "the end of the stream's threads")
