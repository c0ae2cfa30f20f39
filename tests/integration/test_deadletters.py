"""Dead letters on a real Kafka: replayed once and in sequence, whatever dies; parked keys, purges, the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kafka_pubsub import FailedPrecondition, Message, PubSub, Subscription
from kafka_pubsub.config import DeadLetterPolicy, RetryPolicy
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.admin import exclusive_session
from kafka_pubsub.subscribe.admin.exclusive_session import session_group
from kafka_pubsub.subscribe.formats.dead_letter_record import Origin, replay_headers
from kafka_pubsub.subscribe.formats.record import Death, RetryInfo, dead_headers
from tests.support import until

#: Seconds after which a test gives up; far above the time that anything here takes.
PATIENCE = 60.0
QUICK = RetryPolicy(min_backoff=0.01, max_backoff=0.05)


@pytest.fixture
def ps(kafka: Any) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap) as ps:
        yield ps


@pytest.fixture
def name() -> str:
    return f"d-{uuid.uuid4().hex[:12]}"


def make(ps: PubSub, name: str, on_exhausted: Any = "dead_letter") -> Subscription:
    ps.create_topic(name, partitions=4)
    ps.create_topic(f"{name}-dead", partitions=3)
    policy = DeadLetterPolicy(topic=f"{name}-dead", on_exhausted=on_exhausted)
    return ps.create_subscription(name, name, message_ordering=True, retry=QUICK, dead_letter=policy)


def publish(ps: PubSub, topic: str, count: int, keys: int) -> None:
    futures = [
        ps.topic(topic).publish(b"%d" % at, ordering_key=f"k{at % keys}", attributes={"n": str(at)})
        for at in range(count)
    ]
    for future in futures:
        future.result(PATIENCE)


def store_dead_letter(ps: PubSub, kafka: Any, name: str, count: int, keys: int) -> None:
    """As if that many messages had died: published, acked, and written as dead letters by hand."""
    publish(ps, name, count, keys)
    lock = threading.Condition()
    dead_letters: list[tuple[bytes | None, bytes, list[Any]]] = []

    def note(message: Message) -> None:
        info = RetryInfo(topic_id, message.partition, message.offset, attempt=5)
        headers: list[Any] = dead_headers(
            message.headers, info, Death(name, name, "attempts used up", "E", "no", 1)
        )
        with lock:
            dead_letters.append((message.key, message.data, headers))
            lock.notify_all()
        message.ack()

    backend = KafkaBackend(kafka.bootstrap)
    topic_id = backend.admin.topic(name).topic_id
    with ps.subscription(name).pull(note), lock:
        assert lock.wait_for(lambda: len(dead_letters) >= count, PATIENCE)
    backend.close()
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key, data, headers in dead_letters:
        writer.produce(f"{name}-dead", data, key, headers=headers)
    assert writer.flush(PATIENCE) == 0


class Seen:
    """The delivered messages."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.by_key: defaultdict[str | None, list[int]] = defaultdict(list)
        self.changed = threading.Condition()

    def __call__(self, message: Message) -> None:
        assert message.delivery_attempt == 1
        assert message.attributes == {"n": message.data.decode()}
        with self.changed:
            self.counts[int(message.data)] += 1
            self.by_key[message.ordering_key].append(int(message.data))
            self.changed.notify_all()
        message.ack()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.counts) >= count, PATIENCE), len(self.counts)

    def check_once_and_in_order(self) -> None:
        assert set(self.counts.values()) == {1}, self.counts.most_common(3)
        for key, numbers in self.by_key.items():
            assert numbers == sorted(numbers), f"{key}: {numbers}"


def test_what_died_comes_back_and_may_die_again(ps: PubSub, kafka: Any, name: str) -> None:
    sub = make(ps, name)
    publish(ps, name, 6, 3)
    with sub.pull(lambda message: message.nack()):
        until(lambda: len(list(sub.dead_letters())) == 6)
        dead_letters = list(sub.dead_letters())
        assert {each.attempts for each in dead_letters} == {5}
        assert sub.replay_dead_letters(keys=["k1"]).count == 2
        until(lambda: sorted(each.replays for each in sub.dead_letters()) == [0, 0, 0, 0, 1, 1])
    seen = Seen()
    with sub.pull(seen):
        result = sub.replay_dead_letters()
        assert (result.count, result.keys, result.skipped) == (6, 3, {})
        seen.wait_for(6)
        until(lambda: sub.keys() == [])
    seen.check_once_and_in_order()
    assert list(sub.dead_letters()) == []
    assert sub.purge_dead_letters().count == 0
    backend = KafkaBackend(kafka.bootstrap)
    ends = backend.admin.last_stable_offsets(f"{name}-dead")
    places = [TopicPartition(f"{name}-dead", number) for number in range(3)]
    assert {place.partition: backend.admin.log_range(place)[0] for place in places} == ends
    backend.close()


def test_thousands_go_back_while_somebody_receives(ps: PubSub, kafka: Any, name: str) -> None:
    sub = make(ps, name)
    store_dead_letter(ps, kafka, name, 6000, 50)
    seen = Seen()
    with sub.pull(seen):
        assert sub.replay_dead_letters().count == 6000
        seen.wait_for(6000)
        until(lambda: sub.keys() == [])
    seen.check_once_and_in_order()


REPLAY = """
import sys
from kafka_pubsub import PubSub
from kafka_pubsub.dead_letters import replay
replay.BATCH = 50
with PubSub(sys.argv[1]) as ps:
    def tell(progress):
        print(progress.phase, progress.done, flush=True)
    ps.subscription(sys.argv[2]).replay_dead_letters(on_progress=tell)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_replay_that_is_killed_is_finished_by_the_next_without_doubling(
    ps: PubSub, kafka: Any, name: str, number: int
) -> None:
    sub = make(ps, name)
    store_dead_letter(ps, kafka, name, 2000, 20)
    seen = Seen()
    with sub.pull(seen):
        for reached in ("replaying 200", "replaying 500"):
            with subprocess.Popen(
                [sys.executable, "-c", REPLAY, kafka.bootstrap, name],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process:
                assert process.stdout is not None
                assert any(line.strip() == reached for line in process.stdout), "it ended by itself"
                process.send_signal(number)
        left = sub.replay_dead_letters().count
        assert 0 < left <= 1300
        seen.wait_for(2000)
        until(lambda: sub.keys() == [])
    seen.check_once_and_in_order()
    assert list(sub.dead_letters()) == []


def test_what_a_killed_replay_left_open_is_ended_by_the_next(ps: PubSub, kafka: Any, name: str) -> None:
    """Killed inside its transaction, which would bring a letter back: the next transaction brings it back, once."""
    sub = make(ps, name)
    store_dead_letter(ps, kafka, name, 40, 4)
    topic_id = KafkaBackend(kafka.bootstrap).admin.topic(name).topic_id
    dead_letter = next(iter(sub.dead_letters()))
    killed = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": session_group(name),
            "transaction.timeout.ms": 120_000,
            "log_level": 0,
        }
    )
    killed.init_transactions(PATIENCE)
    killed.begin_transaction()
    origin = Origin(topic_id, dead_letter.partition or 0, dead_letter.offset or 0)
    record = MemoryRecord("", 0, 0, dead_letter.key, dead_letter.data, list(dead_letter.headers), 1)
    headers: list[Any] = replay_headers(record, origin)
    killed.produce(
        f"{name}.sub.{name}.retry", dead_letter.data, dead_letter.key, origin.partition, headers=headers
    )
    assert killed.flush(PATIENCE) == 0
    seen = Seen()
    with sub.pull(seen):
        assert sub.replay_dead_letters().count == 40
        seen.wait_for(40)
        with pytest.raises(KafkaException):
            killed.commit_transaction(PATIENCE)
        until(lambda: sub.keys() == [])
    seen.check_once_and_in_order()


def test_of_two_replays_one_waits_or_is_refused(
    ps: PubSub, kafka: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive_session, "PATIENCE", 1.0)
    sub = make(ps, name)
    store_dead_letter(ps, kafka, name, 40, 4)
    refused: list[str] = []

    def meanwhile(progress: Any) -> None:
        if progress.phase == "replaying" and not refused:
            with PubSub(kafka.bootstrap) as other, pytest.raises(FailedPrecondition) as error:
                other.subscription(name).replay_dead_letters()
            refused.append(error.value.message)

    assert sub.replay_dead_letters(on_progress=meanwhile).count == 40
    assert "another client just now" in refused[0]


def test_parked_keys_are_reported_released_and_dropped(ps: PubSub, kafka: Any, name: str) -> None:
    sub = make(ps, name, "park")
    publish(ps, name, 6, 3)
    with PubSub(kafka.bootstrap) as other:
        watched = other.subscription(name)
        with sub.pull(lambda message: message.nack()):
            until(lambda: [each.state for each in list(watched.keys())] == ["parked"] * 3)
        states = watched.keys()
        assert sorted(each.ordering_key or "" for each in states) == ["k0", "k1", "k2"]
        assert {each.attempt for each in states} == {5}
        assert len(watched.state().blocked) == 3
        seen = Seen()
        with sub.pull(seen):
            assert watched.release(keys=["k0"]).count == 1
            seen.wait_for(2)
            assert watched.release(keys=["k1"], drop=True).count == 1
            seen.wait_for(3)
            until(lambda: len(list(watched.dead_letters())) == 1)
            assert watched.release().count == 1
            seen.wait_for(5)
            assert watched.replay_dead_letters().count == 1
            seen.wait_for(6)
            until(lambda: watched.keys() == [])


def test_the_command_line_from_end_to_end(ps: PubSub, kafka: Any, name: str) -> None:
    sub = make(ps, name)
    publish(ps, name, 4, 2)
    with sub.pull(lambda message: message.nack()):
        until(lambda: len(list(sub.dead_letters())) == 4)

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "kafka_pubsub.cli.main", "-b", kafka.bootstrap, "--json", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    dead_letters = run("deadletter", "list", name)
    assert len(dead_letters) == 4
    assert run("deadletter", "show", name, dead_letters[0]["message_id"])["data"] in {"0", "1", "2", "3"}
    assert run("deadletter", "replay", name, "--dry-run")["replayed"] == 4
    assert run("deadletter", "replay", name, "--key", "k0")["replayed"] == 2
    waiting = run("subscription", "keys", name)
    assert [(each["key"], each["state"], each["behind"]) for each in waiting] == [("k0", "waiting", 1)]
    assert run("deadletter", "purge", name, "--yes")["purged"] == 2
    assert run("deadletter", "list", name) == []
