"""Whether a batch was staged, read back from the inboxes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pubsub import NotFound, PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import TopicInfo, TopicPartition
from kafka_pubsub.multicast import publisher as publishing
from kafka_pubsub.multicast.layout import GROUP
from kafka_pubsub.multicast.publisher import MulticastPublisher
from kafka_pubsub.multicast.service import Sequencer
from tests.multicasts import stage
from tests.support import until
from tests.unit.multicast.test_multicast import home
from tests.unit.multicast.test_publisher import PATIENCE, lose_one_answer


@pytest.fixture
def publisher(topics: PubSub, monkeypatch: pytest.MonkeyPatch) -> Iterator[MulticastPublisher]:
    """The publisher of the topics, which has published already, and looks soon for what was released."""
    monkeypatch.setattr(publishing, "_LOOK", 0.2)
    with Sequencer(topics):
        topics.publish_multi(["a", "b"], b"0").result(PATIENCE)
        yield topics._cluster.multicast._publisher


def trim(backend: MemoryBackend, *names: str) -> None:
    for name in names:
        place = TopicPartition(f"{name}.inbox", 0)
        backend.admin.trim(place.topic, {0: backend.admin.log_range(place)[1]})


def lose_the_inboxes(backend: MemoryBackend, topics: PubSub) -> None:
    """Trims the inbox of `a` and deletes `b`, once the message `1` is at home in both."""
    until(lambda: home(backend, "a")[-1:] == home(backend, "b")[-1:] == [b"1"])
    done = backend.admin.group_offsets(GROUP, "a.inbox")[0].offset
    backend.admin.trim("a.inbox", {0: done or 0})
    for _ in range(2):
        topics._cluster.topics.delete("b")


@pytest.mark.parametrize("trimmed", ["ab", "a", "b"])
def test_a_stage_that_was_trimmed_before_it_was_read_back_is_not_staged_again(
    backend: MemoryBackend, topics: PubSub, publisher: MulticastPublisher, trimmed: str
) -> None:
    def deliver() -> None:
        until(lambda: home(backend, "a")[-1:] == home(backend, "b")[-1:] == [b"1"])
        trim(backend, *trimmed)

    lose_one_answer(publisher, deliver)
    topics.publish_multi(["a", "b"], b"1").result(PATIENCE)
    topics.publish_multi(["c", "b"], b"2").result(PATIENCE)
    until(lambda: home(backend, "b") == [b"0", b"1", b"2"])
    assert home(backend, "a") == [b"0", b"1"]


def test_a_stage_whose_inboxes_are_trimmed_or_gone_holds_up_no_other(
    backend: MemoryBackend, topics: PubSub, publisher: MulticastPublisher
) -> None:
    def delete() -> None:
        lose_the_inboxes(backend, topics)

    lose_one_answer(publisher, delete)
    topics.publish_multi(["a", "b"], b"1").result(PATIENCE)
    topics.publish_multi(["c"], b"2").result(PATIENCE)
    assert home(backend, "a") == [b"0", b"1"]


def test_an_inbox_that_is_not_found_for_a_moment_is_asked_again(
    backend: MemoryBackend, topics: PubSub, publisher: MulticastPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, asked = topics._cluster.backend.admin, list[str]()
    real = admin.topic

    def topic(name: str) -> TopicInfo:
        if name.endswith(".inbox") and len(asked) < 4:
            asked.append(name)
            raise NotFound(f"topic {name!r} not found")
        return real(name)

    def deliver() -> None:
        until(lambda: home(backend, "a")[-1:] == home(backend, "b")[-1:] == [b"1"])
        monkeypatch.setattr(admin, "topic", topic)

    lose_one_answer(publisher, deliver)
    topics.publish_multi(["a", "b"], b"1").result(PATIENCE)
    until(lambda: len(asked) == 4)
    topics.publish_multi(["b"], b"2").result(PATIENCE)
    until(lambda: home(backend, "b")[-1:] == [b"2"])
    assert (home(backend, "a"), home(backend, "b")) == ([b"0", b"1"], [b"0", b"1", b"2"])


def test_a_stage_is_looked_for_in_the_inbox_to_which_it_was_written(
    backend: MemoryBackend, topics: PubSub, publisher: MulticastPublisher
) -> None:
    ends: list[int] = []

    def delete() -> None:
        lose_the_inboxes(backend, topics)
        topics.create_topic("b", causal=True)
        for number in range(10):  # so that something else lies where the stage was
            stage(backend, "b", message=f"m{number}")
        ends.append(backend.admin.log_range(TopicPartition("a.inbox", 0))[1])

    lose_one_answer(publisher, delete)
    topics.publish_multi(["a", "b"], b"1").result(PATIENCE)
    topics.publish_multi(["c"], b"2").result(PATIENCE)
    assert backend.admin.log_range(TopicPartition("a.inbox", 0))[1] == ends[0], "it was staged again"
