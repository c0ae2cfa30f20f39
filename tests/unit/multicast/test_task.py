"""Causal topics at their edges: brokers that are wrong or away, inboxes made again, newer versions, long waits."""

from __future__ import annotations

import threading
from zlib import crc32

import pytest

from kafka_pubsub import FailedPrecondition, NotFound, PubSub
from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import NewRecord, TopicPartition
from kafka_pubsub.multicast import bodies as sequencer_bodies
from kafka_pubsub.multicast import role as sequencer_role
from kafka_pubsub.multicast import task as sequencer_task
from kafka_pubsub.multicast.layout import DEAD, RECEIPTS
from kafka_pubsub.multicast.records import decode_inbox, encode_alive
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.multicast.task import SequencerTask
from kafka_pubsub.multicast.values import Alive
from tests.multicasts import stage
from tests.support import until
from tests.unit.multicast.test_multicast import home
from tests.unit.multicast.wrong_brokers import Wrong

PATIENCE = 20.0


def test_a_broker_that_does_not_find_an_inbox_tears_no_message(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    faults.missing = {"c.inbox", "d.inbox"}
    topics.create_topic("d", causal=True)
    waiting = topics.publish_multi(["a", "d"], b"both")
    until(lambda: faults.asked)
    faults.missing.clear()
    waiting.result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "d") == [b"both"])


@pytest.mark.parametrize("missing", ["d", "d.inbox", RECEIPTS])
def test_publishing_waits_for_brokers_that_are_behind_with_a_new_topic(topics: PubSub, missing: str) -> None:
    behind = Wrong()
    cluster = topics._cluster.backend.cluster  # type: ignore[attr-defined]
    topics.create_topic("d", causal=True)
    with PubSub.in_memory(MemoryBackend(cluster=cluster, faults=behind), services=False) as other:
        behind.missing = {missing}
        later = threading.Timer(0.5, behind.missing.clear)
        later.start()
        with Sequencer(topics):
            other.publish_multi(["a", "d"], b"x").result(PATIENCE)
        assert behind.asked > 1
        other._cluster.multicast._timeout = 0.3
        behind.missing = {"b.inbox"}
        with pytest.raises(NotFound, match=r"no broker finds inbox 'b.inbox'"):
            other.publish_multi(["b"], b"x")
        with pytest.raises(NotFound, match="topic 'nowhere' not found"):
            other.publish_multi(["nowhere"], b"x")


@pytest.mark.parametrize("topic", ["b", "b.inbox"])
def test_a_topic_that_is_away_holds_up_its_own_messages_only(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong, topic: str
) -> None:
    faults.unwritable[topic] = BrokerUnavailable(f"{topic} has no leader")
    waiting = topics.publish_multi(["a", "b"], b"1")
    until(lambda: topic in sequencer.health().error)
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.publish_multi(["c"], b"2").result(PATIENCE)
    assert home(backend, "b") == []
    faults.unwritable.clear()
    waiting.result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "b") == [b"1"])
    until(lambda: sequencer.health().ok)


def test_a_release_that_its_only_destination_refuses_fails_the_future(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    faults.unwritable["a"] = InvalidArgument("too large")
    with pytest.raises(FailedPrecondition, match="'a' refused the message, so it is a dead letter"):
        topics.publish_multi(["a"], b"x").result(PATIENCE)
    until(lambda: home(backend, DEAD) == [b"x"])


def test_a_release_that_every_destination_refuses_fails_the_future_with_the_reasons(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong
) -> None:
    faults.unwritable |= {"a": InvalidArgument("too large"), "b": InvalidArgument("no such schema")}
    with pytest.raises(FailedPrecondition) as refused:
        topics.publish_multi(["a", "b"], b"x").result(PATIENCE)
    assert "'a', 'b' refused the message, so it is a dead letter in" in refused.value.message
    assert "'a': too large; 'b': no such schema" in refused.value.message
    until(lambda: home(backend, DEAD) == [b"x", b"x"])
    faults.unwritable.clear()
    topics.publish_multi(["a", "c"], b"y").result(PATIENCE)


@pytest.mark.parametrize("refusing", ["a", "b"])
def test_a_release_that_one_destination_takes_succeeds(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, faults: Wrong, refusing: str
) -> None:
    faults.unwritable[refusing] = InvalidArgument("too large")
    topics.publish_multi(["a", "b"], b"x").result(PATIENCE)
    until(lambda: home(backend, DEAD) == [b"x"])
    assert home(backend, "ab".replace(refusing, "")) == [b"x"]


def test_an_inbox_is_not_trimmed_above_a_message_that_waits(backend: MemoryBackend, topics: PubSub) -> None:
    with Sequencer(topics):
        topics.publish_multi(["a", "b"], b"0").result(PATIENCE)
        stage(backend, "a", "b", message="m", to=["a"])
        before = len(home(backend, "b.inbox"))
        until(lambda: len(home(backend, "b.inbox")) > before)  # the proposal of a
        topics.publish_multi(["c"], b"0").result(PATIENCE)
    assert backend.admin.log_range(TopicPartition("a.inbox", 0))[0] > 0, "a service trims when it ends"
    stage(backend, "a", "b", message="m", to=["b"])
    with Sequencer(topics):
        until(lambda: home(backend, "a") == [b"0", b"m"], patience=PATIENCE)


def test_a_record_of_a_newer_version_is_waited_for(
    backend: MemoryBackend, topics: PubSub, sequencer: Sequencer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value = encode_alive(Alive("id"))
    body = bytes([2]) + (value or b"")[1:-4]
    newer = NewRecord("a.inbox", 0, None, None, [(name, body + crc32(body).to_bytes(4, "big"))])
    backend.transactions("newer").transact([newer], {}, None)
    until(lambda: "is of a newer version: run a sequencer of that version" in sequencer.health().error)
    said: list[str] = []
    until(lambda: len(said) == 50 or said.append(sequencer.health().error))  # type: ignore[func-returns-value]
    assert all("newer version" in each for each in said), "it isn't said all the time"
    waiting = topics.publish_multi(["a", "b"], b"1")
    with PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other:
        other.publish_multi(["c"], b"2").result(PATIENCE)
    assert "newer version" in topics.multicast.status("a")[0].problem
    # The newer sequencer takes over.
    monkeypatch.setattr(
        sequencer_task,
        "decode_inbox",
        lambda headers: Alive("id") if headers == list(newer.headers) else decode_inbox(headers),
    )
    waiting.result(PATIENCE)
    until(lambda: home(backend, "a") == home(backend, "b") == [b"1"])
    assert home(backend, DEAD) == []


def test_bodies_of_batches_that_wait_are_bounded_and_come_home(
    backend: MemoryBackend, topics: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_BUFFERS", "_LEAST"):
        monkeypatch.setattr(sequencer_task, limit, 10_000)
    monkeypatch.setattr(sequencer_bodies, "_BYTES", 10_000)
    tasks: list[SequencerTask] = []
    real = sequencer_role.SequencerRole.begin

    def begin(*arguments: object) -> SequencerTask:
        tasks.append(real(*arguments))  # type: ignore[arg-type]
        return tasks[-1]

    monkeypatch.setattr(sequencer_role.SequencerRole, "begin", begin)
    stage(backend, "a", "b", message="first", to=("a",))
    for number in range(50):
        stage(backend, "a", message=f"m{number}" + "x" * 1000)
    with Sequencer(topics):
        until(lambda: any(each._read > 60 and not each._waiting for each in tasks))
        assert max(each._bodies.size for each in tasks) < 20_000
        stage(backend, "a", "b", message="first", to=("b",))
        until(lambda: len(home(backend, "a")) == 51)
    found = home(backend, "a")
    assert found[1:] == [f"m{number}".encode() + b"x" * 1000 for number in range(50)]


@pytest.mark.parametrize("grown", [0, 30])
def test_an_inbox_that_has_lost_records_is_not_read(
    backend: MemoryBackend, topics: PubSub, grown: int
) -> None:
    with Sequencer(topics) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        stage(backend, "a", "b", message="x", to=["a"])
        until(lambda: home(backend, "b.inbox")[1:])
    backend.cluster.lose_tail("a.inbox", 0, 1)
    for number in range(grown):
        stage(backend, "a", message=f"m{number}")
    with Sequencer(topics) as again:
        until(lambda: "'a.inbox' has lost records" in again.health().error)
        topics.publish_multi(["c"], b"1").result(PATIENCE)
    assert home(backend, "a") == []


def test_an_inbox_of_which_unread_records_were_deleted_is_named_and_others_go_on(
    backend: MemoryBackend, topics: PubSub
) -> None:
    with Sequencer(topics):
        topics.publish_multi(["a", "b"], b"0").result(PATIENCE)
    stage(backend, "a", "b", message="m")
    backend.admin.trim("a.inbox", {0: backend.admin.log_range(TopicPartition("a.inbox", 0))[1]})
    with Sequencer(topics) as sequencer:
        topics.publish_multi(["c"], b"1").result(PATIENCE)
        until(lambda: "'a.inbox' has lost records that no sequencer" in sequencer.health().error)
        topics.publish_multi(["c"], b"2").result(PATIENCE)
        engine = sequencer._engine
        topics.publish_multi(["c"], b"3").result(PATIENCE)
        assert sequencer._engine is engine, "the others don't begin again"
    assert home(backend, "c") == [b"1", b"2", b"3"]
