"""A client that keeps a history: who turns the history on, its files, and that the checker agrees with them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pubsub import InvalidArgument, Message, PubSub, RetryPolicy, Stream, Subscription, aio
from kafka_pubsub.history.histories import HistoryFolder
from tests.checker.judgement import judge
from tests.checker.reading import NotAHistory
from tests.support import until

MESSAGES = 300
PATIENCE = 60.0


class Handler:
    """Acks most messages, nacks or drops some."""

    def __init__(self) -> None:
        self._chance = random.Random(7)

    def __call__(self, message: Message) -> None:
        chance = self._chance.random()
        if chance < 0.1:
            message.nack()
        elif chance < 0.15:
            raise ValueError(chance)
        else:
            message.ack()

    async def coroutine(self, message: Message) -> None:
        self(message)

    def batch(self, messages: list[Message]) -> None:
        for message in messages:
            self(message)


def wait_for_all(acked: Callable[[], int]) -> None:
    """Waits until all messages are finished."""
    until(lambda: acked() == MESSAGES, "acked == MESSAGES", PATIENCE)


def lived(directory: Path, open_stream: Callable[[Subscription, Handler], Stream]) -> None:
    """A short life: a stream receives all published messages."""
    with PubSub.in_memory(history=directory) as ps:
        topic = ps.create_topic("orders", partitions=2, message_ordering=True)
        policy = RetryPolicy(min_backoff=0.001, max_backoff=0.01)
        billing = ps.create_subscription("billing", topic, message_ordering=True, retry=policy)
        callback = Handler()
        with open_stream(billing, callback) as stream:
            for at in range(MESSAGES):
                key = None if at % 10 == 0 else f"key-{at % 13}"
                topic.publish(b"%d" % at, ordering_key=key, attributes={"number": str(at)})
            wait_for_all(lambda: stream.stats.acked)


@pytest.mark.parametrize(
    "open_stream",
    [
        lambda subscription, callback: subscription.pull(callback),
        lambda subscription, callback: subscription.pull(callback, max_workers=1),
        lambda subscription, callback: subscription.pull_batch(callback.batch),
    ],
    ids=["many", "one", "batches"],
)
def test_a_life_that_keeps_its_promises(
    open_stream: Callable[[Subscription, Handler], Stream], tmp_path: Path
) -> None:
    lived(tmp_path, open_stream)
    judgement = judge(tmp_path)
    assert judgement.ok, judgement.text
    counts = judgement.counts
    assert (counts["messages"], counts["ownerships"]) == (MESSAGES, 2)
    assert counts["redelivered_nack"] > 20
    assert counts["commits"] > 0
    assert judgement.reports["billing"].files == 2


def test_a_life_of_coroutines(tmp_path: Path) -> None:
    async def live() -> None:
        async with asyncio.timeout(PATIENCE), aio.PubSub.in_memory(history=tmp_path) as ps:
            topic = await ps.create_topic("orders", partitions=2, message_ordering=True)
            policy = RetryPolicy(min_backoff=0.001, max_backoff=0.01)
            billing = await ps.create_subscription("billing", topic, message_ordering=True, retry=policy)
            callback = Handler()
            async with await billing.pull(callback.coroutine) as stream:
                for at in range(MESSAGES):
                    await topic.publish(b"%d" % at, ordering_key=f"key-{at % 13}")
                await asyncio.to_thread(wait_for_all, lambda: stream.stats.acked)

    asyncio.run(live())
    judgement = judge(tmp_path)
    assert judgement.ok, judgement.text
    assert judgement.counts["redelivered_nack"] > 20


def test_synchronous_pull(tmp_path: Path) -> None:
    with PubSub.in_memory(history=tmp_path) as ps:
        topic = ps.create_topic("orders", partitions=1)
        billing = ps.create_subscription("billing", topic)
        for at in range(5):
            topic.publish(b"%d" % at).result(PATIENCE)
        received: list[Message] = []
        while len(received) < 5:
            received += billing.receive(10, PATIENCE)
        billing.acknowledge([message.ack_id for message in received])
    judgement = judge(tmp_path)
    assert judgement.ok, judgement.text
    assert judgement.counts["acks"] == 5


def test_each_subscription_is_judged_by_itself(tmp_path: Path) -> None:
    with PubSub.in_memory(history=tmp_path) as ps:
        for name in ("orders", "payments"):
            topic = ps.create_topic(name, partitions=1)
            subscription = ps.create_subscription(f"of-{name}", topic)
            topic.publish(b"x").result(PATIENCE)
            if name == "orders":
                (message,) = subscription.receive(1, PATIENCE)
                message.ack()
            else:
                subscription.receive(1, PATIENCE)
    judgement = judge(tmp_path)
    assert judgement.reports["of-orders"].ok
    assert [problem.split(":")[:2] for problem in judgement.problems] == [
        ["of-payments", " unsettled"],
        ["of-payments", " lost"],
    ]


def test_what_a_publish_came_to_is_reported(tmp_path: Path) -> None:
    with PubSub.in_memory(history=tmp_path) as ps:
        topic = ps.create_topic("orders", partitions=1, message_ordering=False)
        with pytest.raises(InvalidArgument):
            topic.publish(b"x", ordering_key="k")
        with pytest.raises(InvalidArgument):
            topic.publish("no bytes")  # type: ignore[arg-type]
        topic.publish(b"x").result(PATIENCE)
    (path,) = tmp_path.iterdir()
    events = [line.split(b'"')[3] for line in path.read_bytes().splitlines()]
    assert events == [b"open", b"send", b"failed", b"send", b"stored", b"close"]


def test_many_messages_of_one_call_are_reported_one_by_one(tmp_path: Path) -> None:
    with PubSub.in_memory(history=tmp_path) as ps:
        topic = ps.create_topic("orders", partitions=1)
        with pytest.raises(InvalidArgument):
            topic.publish_many([b"x", {"data": b"y", "ordering_key": ""}])
        futures = topic.publish_many([b"x", {"data": b"y", "ordering_key": "k", "attributes": {"a": "b"}}])
        assert futures.result(PATIENCE) == ["orders:0:0", "orders:0:1"]
        assert futures[1].result(PATIENCE) == "orders:0:1"
    (path,) = tmp_path.iterdir()
    events = [line.split(b'"')[3] for line in path.read_bytes().splitlines()]
    assert sorted(events) == sorted([b"open", b"send", b"send", b"stored", b"stored", b"close"])


def test_a_directory_without_histories_cant_be_judged(tmp_path: Path) -> None:
    (tmp_path / "killed.jsonl").write_bytes(bytes(100))
    with pytest.raises(NotAHistory):
        judge(tmp_path)


def test_the_environment_turns_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("KAFKA_PUBSUB_HISTORY", str(file))
    with pytest.raises(InvalidArgument, match="history"):
        PubSub("localhost:1")
    monkeypatch.setenv("KAFKA_PUBSUB_HISTORY", "")
    PubSub("localhost:1").close()


def test_no_file_is_written_over(tmp_path: Path) -> None:
    folder = HistoryFolder(tmp_path / "new")
    for _ in range(3):
        folder.of_publisher("a/b").close()
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_a_history_that_cant_be_made_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    with PubSub.in_memory(history=directory) as ps:
        topic = ps.create_topic("orders")
        directory.rmdir()
        with pytest.raises(InvalidArgument, match=r"history: .*gone.* can't be written"):
            topic.publish(b"x")
