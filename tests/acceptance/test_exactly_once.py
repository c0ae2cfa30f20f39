"""Exactly-once acks on a real broker: a message whose ack was durable is never delivered again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_pubsub import (
    AckError,
    Message,
    PubSub,
    RetryPolicy,
    StaleAck,
    Subscription,
    Topic,
    UnknownAck,
    aio,
)
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.subscribe.partition import commits
from kafka_pubsub.subscribe.stream import runner
from tests.acceptance.exact_member import ACKED, DELIVERED
from tests.acceptance.support import PATIENCE, Deliveries, Room, all_stored, until

ROOT = Path(__file__).parents[2]
QUICK = RetryPolicy(min_backoff=0.05, max_backoff=0.3)


def publish(topic: Topic, numbers: range, keys: int = 500) -> None:
    all_stored([topic.publish(b"%d" % at, ordering_key=f"k{at % keys}") for at in numbers])


class Journal:
    """The journals of the processes, in order: of each message the deliveries and the durable acks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[tuple[str, str]]:
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [(line[0], line[2:]) for line in whole.splitlines()]

    def acked(self) -> set[str]:
        return {message for what, message in self.lines() if what == ACKED}

    def delivered(self) -> set[str]:
        return {message for what, message in self.lines() if what == DELIVERED}

    def again(self) -> list[str]:
        """Messages that were delivered after their ack was durable."""
        durable: set[str] = set()
        found = []
        for what, message in self.lines():
            if what == ACKED:
                durable.add(message)
            elif what == DELIVERED and message in durable:
                found.append(message)
        return found


@contextmanager
def member(
    kafka: RunningKafka, sub: Subscription, journal: Journal, kind: str
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [kafka.bootstrap, sub.name, str(journal.path), kind]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.exact_member", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "count", "lives"),
    [
        ("wait", 2_000, 2),
        pytest.param("go_on", 30_000, 3, marks=pytest.mark.slow),
        pytest.param("batch", 12_000, 2, marks=pytest.mark.slow),
    ],
)
def test_after_a_sigkill_at_full_speed_nothing_durable_comes_again(
    kafka: RunningKafka, room: Room, tmp_path: Path, kind: str, count: int, lives: int
) -> None:
    topic, sub = room.pair(exactly_once=True, retry=QUICK)
    journal = Journal(tmp_path / "journal")
    chance = random.Random(7)
    portion = count // lives
    in_the_middle = False
    for life in range(1, lives):
        # New messages for each life: any of the earlier ones may be durable without a word in the journal.
        publish(topic, range((life - 1) * portion, life * portion))
        with member(kafka, sub, journal, kind) as process:
            enough = len(journal.acked()) + portion // 10
            until(lambda enough=enough: len(journal.acked()) >= enough, f"{enough} durable acks")  # type: ignore[misc]
            time.sleep(chance.random() / 20)  # somewhere in the middle of a commit
            process.send_signal(signal.SIGKILL)
            process.wait()
            in_the_middle |= len(journal.acked()) < life * portion
    assert in_the_middle, "each was killed when all was over"
    publish(topic, range((lives - 1) * portion, count))
    with member(kafka, sub, journal, kind) as process:
        # An ack that was stored at the moment of the kill is in no journal, and its message doesn't come again.
        until(lambda: len(journal.delivered()) == count, f"all {count} messages", 2 * PATIENCE)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    assert journal.again() == []
    assert sub.state().lag == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_members_that_come_and_go_never_see_what_is_durable(
    kafka: RunningKafka, room: Room, tmp_path: Path
) -> None:
    topic, sub = room.pair(exactly_once=True, retry=QUICK)
    journal = Journal(tmp_path / "journal")
    count = 12_000
    with member(kafka, sub, journal, "go_on"):
        publish(topic, range(count // 2))
        for _ in range(2):
            with member(kafka, sub, journal, "go_on") as other:
                before = len(journal.acked())
                publish(topic, range(count // 2, 3 * count // 4))
                until(lambda before=before: len(journal.acked()) > before + 1000, "more acks")  # type: ignore[misc]
                assert other.stdin is not None
                other.stdin.close()
                assert other.wait(PATIENCE) == 0
        until(lambda: len(journal.acked()) == count, "all acks")
    assert journal.again() == []


@pytest.mark.parametrize("waits", [True, False])
def test_commits_hurry_while_an_ack_waits(room: Room, monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """Neither for the grid of commits nor for the end of a read, which are far apart here."""
    monkeypatch.setattr(commits, "COMMIT_INTERVAL", 2 * PATIENCE)
    monkeypatch.setattr(runner, "READ_WAIT", 10.0)
    topic, sub = room.pair(exactly_once=True)
    answered: list[None] = []

    def handle(message: Message) -> None:
        answer = message.ack_with_response()
        if waits:
            answered.append(answer.result(PATIENCE))
        else:
            answer.add_done_callback(lambda done: answered.append(done.result()))

    with sub.pull(handle):
        for at in range(5):
            topic.publish(b"%d" % at, ordering_key=f"k{at}").result(PATIENCE)
            until(lambda at=at: len(answered) > at, "the answer", 8.0)  # type: ignore[misc]


def test_without_the_option_an_ack_can_be_waited_for_as_well(room: Room, log: Deliveries) -> None:
    topic, sub = room.pair()
    answers: list[Future[None]] = []

    def handle(message: Message) -> None:
        with log.handling(message):
            answers.append(message.ack_with_response())

    with sub.pull(handle):
        publish(topic, range(200), keys=20)
        log.wait_for(200)
        assert not wait(answers, PATIENCE).not_done
        assert all(answer.exception() is None for answer in answers)
        assert sub.state().lag == 0, "told after it was stored"
    assert len(log.all) == 200


def test_synchronous_pull_acks_for_good_and_only_by_the_newest_id(kafka: RunningKafka, room: Room) -> None:
    topic, sub = room.pair(exactly_once=True, ack_deadline=1)
    publish(topic, range(1))
    (old,) = sub.receive(1, timeout=PATIENCE)
    (new,) = sub.receive(1, timeout=PATIENCE)
    assert (new.message_id, new.delivery_attempt) == (old.message_id, 2)
    with pytest.raises(StaleAck, match="too late") as caught:
        sub.acknowledge([old.ack_id])
    assert caught.value.ack_ids == (old.ack_id,)
    with PubSub(kafka.bootstrap) as other, pytest.raises(UnknownAck):
        other.subscription(sub.name).acknowledge([new.ack_id])
    sub.acknowledge([new.ack_id])
    assert sub.state().lag == 0
    with pytest.raises(StaleAck):
        sub.acknowledge([new.ack_id])


def test_coroutines_wait_for_it(kafka: RunningKafka, room: Room) -> None:
    topic, sub = room.pair(exactly_once=True)
    publish(topic, range(500))

    async def work() -> None:
        done, seen = asyncio.Event(), defaultdict[str, int](int)

        async def handle(message: Message) -> None:
            await message.ack_with_response()
            seen[message.message_id] += 1
            if len(seen) == 500:
                done.set()

        async with aio.PubSub(kafka.bootstrap) as ps, ps.subscription(sub.name).pull(handle):
            await asyncio.wait_for(done.wait(), PATIENCE)
        assert set(seen.values()) == {1}

    asyncio.run(work())
    assert sub.state().lag == 0


def test_an_ack_that_lost_its_partition_says_so_and_the_message_comes_again(
    kafka: RunningKafka, room: Room
) -> None:
    """A process that stands still beyond its session: its late ack counts for nothing."""
    topic, sub = room.pair(exactly_once=True)
    publish(topic, range(1))
    script = """
import sys, threading
from kafka_pubsub import AckError, PubSub
told = threading.Event()
def handle(message):
    print("got", message.message_id, flush=True)
    sys.stdin.readline()
    try:
        message.ack_with_response().result(60)
        print("durable", flush=True)
    except AckError as error:
        print(type(error).__name__, error, flush=True)
    told.set()
with PubSub(sys.argv[1]) as ps, ps.subscription(sys.argv[2]).pull(handle):
    told.wait(120)
"""
    arguments = [sys.executable, "-c", script, kafka.bootstrap, sub.name]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            first = process.stdout.readline().split()
            process.send_signal(signal.SIGSTOP)
            again: list[Message] = []
            got = threading.Event()

            def handle(message: Message) -> None:
                message.ack_with_response().result(PATIENCE)
                again.append(message)
                got.set()

            with sub.pull(handle):
                assert got.wait(PATIENCE)
                process.stdin.write("go on\n")
                process.stdin.flush()
                process.send_signal(signal.SIGCONT)
                answer = process.stdout.readline()
            assert first == ["got", again[0].message_id]
            assert answer.split()[0] in (StaleAck.__name__, AckError.__name__), answer
            assert "delivered again" in answer
            assert len(again) == 1
        finally:
            process.kill()
