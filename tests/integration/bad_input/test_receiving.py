"""Wrong subscriptions, ack ids, deadlines and callbacks: a clear error or a defined result, and nothing lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pubsub import (
    FlowControl,
    InvalidArgument,
    Message,
    NotFound,
    PubSub,
    RetryPolicy,
    Subscription,
    UnknownAck,
)
from kafka_pubsub.local.pytest_plugin import RunningKafka
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

SOON = RetryPolicy(min_backoff=0, max_backoff=0)


@pytest.mark.parametrize(
    "use",
    [
        lambda sub: sub.pull(print),
        lambda sub: sub.pull_batch(print),
        lambda sub: sub.receive(1, timeout=1),
        lambda sub: sub.state(),
        lambda sub: sub.options,
        lambda sub: sub.topic,
        lambda sub: sub.delete(),
    ],
    ids=["pull", "pull_batch", "receive", "state", "options", "topic", "delete"],
)
def test_an_unknown_subscription_is_not_found(room: Room, use: Callable[[Subscription], object]) -> None:
    name = f"{room.name}-unknown"
    with pytest.raises(NotFound, match=name) as refused:
        use(room.ps.subscription(name))
    assert refused.value.code == 5


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda sub: sub.pull(None), "callback"),
        (lambda sub: sub.pull("text"), "callback"),
        (lambda sub: sub.pull(print, max_workers=0), "max_workers"),
        (lambda sub: sub.pull(print, max_workers=-1), "max_workers"),
        (lambda sub: sub.pull(print, flow=FlowControl(max_messages=0)), "max_messages"),
        (lambda sub: sub.pull(print, flow=FlowControl(max_bytes=-1)), "max_bytes"),
        (lambda sub: sub.pull_batch(print, max_messages=0), "max_messages"),
        (lambda sub: sub.pull_batch(print, max_latency=-1), "max_latency"),
        (lambda sub: sub.pull_batch(print, max_latency=float("nan")), "max_latency"),
        (lambda sub: sub.receive(0), "max_messages"),
        (lambda sub: sub.receive(-1), "max_messages"),
        (lambda sub: sub.receive(1, timeout=-1), "timeout"),
        (lambda sub: sub.receive(1, timeout=float("nan")), "timeout"),
        (lambda sub: sub.acknowledge("one string"), "ack_ids"),
        (lambda sub: sub.modify_ack_deadline("one string", 10), "ack_ids"),
        (lambda sub: sub.modify_ack_deadline([], -1), "seconds"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named_and_nothing_joins_the_group(
    kafka: RunningKafka, use: Callable[[Any], object], text: str, existing: Subscription
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        use(existing)
    assert existing.state().members == 0


@pytest.fixture(scope="module")
def existing(kafka: RunningKafka) -> Any:
    """A subscription that nobody receives from."""
    with PubSub(kafka.bootstrap) as ps:
        yield Room(ps).pair()[1]


@pytest.mark.parametrize(
    "options",
    [
        {"ack_deadline": -1},
        {"ack_deadline": 0},
        {"ack_deadline": 601},
        {"ack_deadline": float("nan")},
        {"max_extension": -1},
        {"max_extension": float("inf")},
    ],
    ids=repr,
)
def test_deadlines_that_cannot_be_are_refused_and_nothing_is_made(
    existing: Subscription, ps: PubSub, options: dict[str, Any]
) -> None:
    (field,) = options
    with pytest.raises(InvalidArgument, match=field):
        ps.create_subscription(f"{existing.name}-new", existing.topic, **options)
    with pytest.raises(InvalidArgument, match=field):
        ps.update_subscription(existing.name, **options)
    assert f"{existing.name}-new" not in [each.name for each in ps.list_subscriptions()]
    assert existing.options.ack_deadline == 10


def test_a_negative_delay_of_a_nack_is_refused_and_the_message_is_still_the_callbacks(
    room: Room, log: Deliveries
) -> None:
    topic, subscription = room.pair()
    refused: list[Exception] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            for delay in (-1.0, float("nan"), 604_801.0):
                try:
                    message.nack(delay=delay)
                except InvalidArgument as error:
                    refused.append(error)
            message.ack()

    with subscription.pull(handle) as stream:
        topic.publish(b"x", ordering_key="key").result(PATIENCE)
        until(lambda: stream.stats.acked == 1)
    assert len(refused) == 3
    assert len(log.all) == 1


FORGED = [
    "",
    "nonsense",
    "ä",
    "A" * 40,
    "A" * 100_000,
    None,
    7,
    b"bytes",
]


def test_forged_and_foreign_ack_ids_are_unknown_and_the_others_count(kafka: RunningKafka, room: Room) -> None:
    """Two processes on a single subscription: an id is good only where it was handed out."""
    topic, subscription = room.pair(ack_deadline=600)
    foreign_topic, foreign_subscription = room.pair()
    all_stored(topic.publish(b"%d" % number, ordering_key=f"key-{number}") for number in range(3))
    messages: list[Message] = []
    while len(messages) < 3:
        messages += subscription.receive(3, timeout=PATIENCE)
    good = [message.ack_id for message in messages]
    for wrong in [*FORGED, good[0][:-3] + "AAA", good[0][1:], good[0] + good[0]]:
        with pytest.raises(UnknownAck) as refused:
            subscription.acknowledge([wrong])  # type: ignore[list-item]
        assert refused.value.code == 3
        assert len(refused.value.message) < 500
        with pytest.raises(UnknownAck):
            subscription.modify_ack_deadline([wrong], 10)  # type: ignore[list-item]
    with PubSub(kafka.bootstrap) as other, pytest.raises(UnknownAck, match="another process"):
        other.subscription(subscription.name).acknowledge(good)
    foreign_topic.publish(b"x").result(PATIENCE)
    (foreign,) = foreign_subscription.receive(1, timeout=PATIENCE)
    with pytest.raises(UnknownAck):
        subscription.acknowledge([foreign.ack_id])
    assert subscription.state().in_flight == 3
    # The good ones of a list with a wrong one count, whatever their place.
    with pytest.raises(UnknownAck):
        subscription.acknowledge([good[0], "nonsense", good[1]])
    until(lambda: subscription.state().in_flight == 1)
    subscription.acknowledge([*good, good[2]])  # some twice: no error, and nothing happens
    until(lambda: subscription.state().lag == 0)
    topic.publish(b"last").result(PATIENCE)
    (last,) = subscription.receive(10, timeout=PATIENCE)
    assert last.data == b"last"


class NotAnException(BaseException):
    """What only a careless library would raise."""


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(1), NotAnException(), StopIteration(), None], ids=repr
)
def test_a_callback_that_raises_nacks_and_its_thread_goes_on(
    room: Room, log: Deliveries, caplog: pytest.LogCaptureFixture, error: BaseException | None
) -> None:
    """More often than there are threads, whatever is raised: a thread that died would be missed."""
    topic, subscription = room.pair(retry=SOON)

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.delivery_attempt <= 3:
                if error is None:
                    handle(message, "wrong signature")  # type: ignore[call-arg]
                else:
                    raise error
            message.ack()

    with caplog.at_level(logging.ERROR), subscription.pull(handle, max_workers=2) as stream:
        all_stored(topic.publish(b"%d" % number, ordering_key=f"key-{number % 2}") for number in range(4))
        until(lambda: stream.stats.acked == 4)
    assert log.by_key == {
        "key-0": [b"0"] * 4 + [b"2"] * 4,
        "key-1": [b"1"] * 4 + [b"3"] * 4,
    }
    assert "raised" in caplog.text


def test_a_callback_that_raises_after_its_ack_has_acked(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair(retry=SOON)

    def handle(message: Message) -> None:
        log.ack(message)
        raise ValueError("too late to matter")

    with subscription.pull(handle) as stream:
        all_stored(topic.publish(b"%d" % number, ordering_key="key") for number in range(3))
        until(lambda: stream.stats.acked == 3)
    assert log.bodies == [b"0", b"1", b"2"]


def test_a_callback_that_never_returns_holds_its_key_only_and_closing_says_so(
    room: Room, log: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    topic, subscription = room.pair()
    release = threading.Event()

    def handle(message: Message) -> None:
        with log.handling(message):
            if message.data == b"hangs":
                release.wait(2 * PATIENCE)
            message.ack()

    stream = subscription.pull(handle, max_workers=4)
    topic.publish(b"hangs", ordering_key="stuck").result(PATIENCE)
    log.wait_for(1)
    all_stored(topic.publish(b"%d" % number, ordering_key="stuck") for number in range(5))
    all_stored(topic.publish(b"%d" % number, ordering_key=f"key-{number % 10}") for number in range(1000))
    log.wait_for(1001)
    (blocked,) = subscription.state().blocked
    assert (blocked.key, blocked.reason, blocked.waiting) == (b"stuck", "with its callback", 5)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        stream.close(timeout=0.5)
    assert time.monotonic() - started < PATIENCE
    assert "closed while callbacks still run" in caplog.text
    assert "stuck" in caplog.text
    assert log.by_key["stuck"] == [b"hangs"]
    # Nothing is lost: whoever comes next gets the key from there on; the old handler's ack comes too late.
    second = Deliveries()
    with subscription.pull(second.ack):
        second.wait_for(6)
        release.set()
        until(lambda: stream.stats.stale == 1)
    assert second.all == [("stuck", body) for body in (b"hangs", b"0", b"1", b"2", b"3", b"4")]


def test_a_stream_is_closed_from_its_own_callback(room: Room, log: Deliveries) -> None:
    topic, subscription = room.pair()
    streams: list[Any] = []

    def handle(message: Message) -> None:
        log.ack(message)
        if message.data == b"end":
            streams[0].cancel()

    streams.append(subscription.pull(handle))
    all_stored(topic.publish(body, ordering_key="key") for body in (b"0", b"end"))
    streams[0].result(PATIENCE)
    topic.publish(b"after", ordering_key="key").result(PATIENCE)
    with subscription.pull(log.ack):
        log.wait_for(3)
    assert log.bodies == [b"0", b"end", b"after"]
