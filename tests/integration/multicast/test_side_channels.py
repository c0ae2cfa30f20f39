"""A sequencer's proposals reach all inboxes at a single moment: the anomaly on a real broker if they don't.

The scene: `b`'s clock is ahead. A goes to `a` and `b`. When A is at home in `b`, a process that saw it there
publishes B to `a`, where A isn't yet. B must come behind A.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub import PubSub
from kafka_pubsub.local.broker import LocalKafka
from kafka_pubsub.model import Ending, NewRecord, TopicPartition
from kafka_pubsub.multicast.service import Sequencer
from kafka_pubsub.multicast.task import SequencerTask
from kafka_pubsub.multicast.values import Output, Propose
from tests.causal import PATIENCE
from tests.support import until

#: The topics of a test.
LETTERS = "ab"


class Mail:
    """Proposals that a broken sequencer sends separately; each is stored when it is told to arrive."""

    def __init__(self, ps: PubSub, patch: pytest.MonkeyPatch) -> None:
        self._backend, self._records = ps._cluster.backend, list[NewRecord]()
        real = SequencerTask._write

        def write(task: SequencerTask, output: Output, records: list[NewRecord]) -> None:
            before = len(records)
            real(task, output, records)
            if isinstance(output, Propose):
                self._records += [
                    each for each in records[before:] if each.topic != f"{task._place.topic}.inbox"
                ]
                kept = [each for each in records[before:] if each.topic == f"{task._place.topic}.inbox"]
                records[before:] = kept

        patch.setattr(SequencerTask, "_write", write)

    def arrive(self, topic: str) -> None:
        """Waits for the proposal for a topic, and stores it."""
        inbox = f"{topic}.inbox"
        until(lambda: [each for each in self._records if each.topic == inbox], "a proposal")
        transactions = self._backend.transactions(f"mail-{uuid.uuid4().hex}")
        found = [each for each in self._records if each.topic == inbox]
        assert transactions.transact(found, {}, None).ending is Ending.STORED
        transactions.close()


def bodies(broker: LocalKafka, name: str, count: int) -> Sequence[bytes]:
    """Returns the first messages of a home topic, as a plain consumer of committed records sees them."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([KafkaPartition(name, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        record = consumer.poll(PATIENCE)
        assert record is not None
        assert record.error() is None
        found.append(record.value() or b"")
    consumer.close()
    return found


def play(broker: LocalKafka, ps: PubSub, other: PubSub, names: Sequence[str], mail: Mail | None) -> None:
    """Plays the scene."""
    a, b = names
    place = TopicPartition(f"{a}.inbox", 0)
    watermarks = ps._cluster.backend.admin.high_watermarks
    with Sequencer(ps) as sequencer:
        sequencer.wait_until_running(PATIENCE)
        with PubSub(broker.bootstrap) as third:  # the others mustn't know b's clock
            for number in range(5):
                third.publish_multi([b], b"%d" % number).result(PATIENCE)
        ps.publish_multi([a, b], b"A")
        if mail:
            mail.arrive(b)
        assert bodies(broker, b, 6)[-1] == b"A"
        # The signal: a process that saw A tells the other process, by no topic.
        before = watermarks([place])[place]
        other.publish_multi([a], b"B")
        until(lambda: watermarks([place])[place] > before, "B in the inbox")
        if mail:
            mail.arrive(a)
        assert bodies(broker, a, 2) == [b"A", b"B"]


def test_what_a_side_channel_caused_comes_behind_its_cause(
    broker: LocalKafka, ps: PubSub, other: PubSub, names: list[str]
) -> None:
    play(broker, ps, other, names, None)


def test_proposals_that_are_sent_one_by_one_put_it_before_its_cause(
    broker: LocalKafka, ps: PubSub, other: PubSub, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule broken on purpose: the test above must be able to fail."""
    with pytest.raises(AssertionError, match="b'B', b'A'"):
        play(broker, ps, other, names, Mail(ps, monkeypatch))
