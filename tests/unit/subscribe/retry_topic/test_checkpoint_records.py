"""Two versions of the client side by side: records of a newer version are refused, and never delivered again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafka_pubsub import FailedPrecondition, Message, PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.retry_topic import checkpoint_records as checkpoints
from kafka_pubsub.subscribe.retry_topic.checkpoint_reader import checkpoint_of, newest
from tests.checkpoints import write
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

MAIN, RETRY = TopicPartition("orders", 0), TopicPartition("orders.sub.billing.retry", 0)
Patch = pytest.MonkeyPatch


@contextmanager
def next_metadata(patch: Patch) -> Iterator[None]:
    """The client as its next version may be, with other metadata; reads this version's as well."""
    with patch.context() as newer:
        newer.setattr(ack_map, "VERSION", ack_map.VERSION + 1)
        yield


@contextmanager
def next_schema(patch: Patch) -> Iterator[None]:
    """The same with another schema of checkpoints."""
    real = checkpoints._schema
    with patch.context() as newer:
        newer.setattr(checkpoints, "VERSION", checkpoints.VERSION + 1)
        newer.setattr(checkpoints, "header", lambda: (checkpoints.SCHEMA_HEADER, b"checkpoint/v2"))
        newer.setattr(checkpoints, "_schema", lambda version: real(1))
        yield


class Group:
    """A single subscription, and what its handlers have got."""

    def __init__(self) -> None:
        self.backend = MemoryBackend()
        self.seen: list[int] = []
        self.published = 0
        with PubSub.in_memory(self.backend) as ps:
            ps.create_topic("orders", partitions=1, message_ordering=True)
            ps.create_subscription("billing", topic="orders", message_ordering=True)

    def publish(self, count: int) -> None:
        with PubSub.in_memory(self.backend) as ps:
            for _ in range(count):
                self.published += 1
                ps.topic("orders").publish(b"", ordering_key=f"k{self.published}").result(PATIENCE)

    def ack(self, message: Message) -> None:
        """Acks every message with an odd offset; the others stay unacked."""
        self.seen.append(message.offset)
        if message.offset % 2:
            message.ack()

    def serve(self, count: int) -> None:
        """A process serves the subscription until it has got so many messages, and closes."""
        before = len(self.seen)
        with PubSub.in_memory(self.backend) as ps, ps.subscription("billing").pull(self.ack):
            until(lambda: len(self.seen) >= before + count, f"{count} messages")

    def refused(self) -> str:
        """A process of this version tries to serve the subscription; returns why it doesn't."""
        before = len(self.seen)
        with (
            pytest.raises(FailedPrecondition) as refusal,
            PubSub.in_memory(self.backend) as ps,
            ps.subscription("billing").pull(self.ack) as stream,
        ):
            stream.result(PATIENCE)
        assert len(self.seen) == before, "something was delivered"
        return str(refusal.value)

    def stored(self) -> dict[TopicPartition, Committed]:
        return dict(self.backend.cluster.group("billing").offsets)


def test_what_this_version_wrote_is_read_by_the_next_one_which_is_refused_afterwards(
    monkeypatch: Patch,
) -> None:
    group = Group()
    group.publish(10)
    group.serve(10)
    group.seen.clear()
    with next_metadata(monkeypatch):
        group.publish(1)
        group.serve(6)  # the five unacked messages, and the new message
        assert sorted(group.seen) == [0, 2, 4, 6, 8, 10]
    before = group.stored()
    why = group.refused()
    assert f"version {ack_map.VERSION + 1}" in why
    assert f"up to {ack_map.VERSION}:" in why
    assert "partition 0" in why
    assert group.stored() == before, "it has committed over what it can't read"
    with next_metadata(monkeypatch):
        group.seen.clear()
        group.serve(6)
        assert 1 not in group.seen, "an acked message came again"


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_checkpoint_of_the_next_version_is_refused(monkeypatch: Patch, forgotten: bool) -> None:
    """Named by the commit, or found where the broker has forgotten the group's positions."""
    group = Group()
    group.publish(10)
    with next_schema(monkeypatch):
        group.serve(10)
    if forgotten:
        group.backend.cluster.forget_offsets("billing")
    why = group.refused()
    assert f"version {checkpoints.VERSION + 1}" in why
    assert str(RETRY.topic) in why
    with next_schema(monkeypatch):
        group.seen.clear()
        group.serve(5)
        assert not any(offset % 2 for offset in group.seen), "an acked message came again"


def test_this_version_goes_on_from_what_it_wrote_itself(monkeypatch: Patch) -> None:
    group = Group()
    group.publish(10)
    group.serve(10)
    group.seen.clear()
    group.serve(5)
    assert not any(offset % 2 for offset in group.seen)


def test_an_old_or_damaged_text_is_no_newer_version(monkeypatch: Patch) -> None:
    text = ack_map.encode(AckMap(7, ((3, 5),)), 1)
    assert ack_map.decode(text[:-1] + "x", 1) is None
    with monkeypatch.context() as older:
        older.setattr(ack_map, "VERSION", ack_map._OLDEST - 1)
        old = ack_map.encode(AckMap(7, ((3, 5),)), 1)
    assert ack_map.decode(old, 1) is None, "it was never released"


def test_another_writers_newer_record_between_two_parts_is_passed_over(monkeypatch: Patch) -> None:
    backend = MemoryBackend()
    backend.admin.create_topic("retry", 1, None, {})
    place = TopicPartition("retry", 0)
    named = write(backend.cluster, "retry", (1, 2), nonce=1)
    newer: Callable[[], object] = lambda: backend.cluster.append(  # noqa: E731
        "retry", 0, b"?", None, [(checkpoints.SCHEMA_HEADER, b"checkpoint/v99")]
    )
    newer()
    assert checkpoint_of(backend.record_fetch(), place, named, 2) is not None
    with pytest.raises(FailedPrecondition, match="version 99"):
        newest(backend.record_fetch(), {place: (0, 2)}, ("id", "retry-id"))
