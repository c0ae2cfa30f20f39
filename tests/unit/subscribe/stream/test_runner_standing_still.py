"""A process that stood still for longer than a session begins nothing until the log has taken its own commit.

The shell is real, threads included; the log is in memory, and a clock that jumps is what standing still looks like.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from kafka_pubsub import Message, PubSub, Stream
from kafka_pubsub.log.clocks import AWAY
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from tests.unit.subscribe.workers.holding import PATIENCE

#: Long enough for the runner to sweep many times, if it were to hand anything out.
A_WHILE = 1.0


class Log(FaultPlan):
    """Refuses commits when the test says so, and takes its time with answers; counts the refused commits."""

    def __init__(self) -> None:
        self.down = False
        self.refused = 0
        self.asked, self.answers = threading.Event(), threading.Event()
        self.answers.set()

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        down = self.down
        self.asked.set()
        self.answers.wait(PATIENCE)
        self.refused += down
        return RequestOutcome.REFUSED if down else RequestOutcome.DONE


class Life:
    """A stream, and its events."""

    def __init__(self, ps: PubSub, log: Log, workers: int) -> None:
        self.log = log
        self._topic = ps.create_topic("orders", partitions=1)
        subscription = ps.create_subscription("billing", "orders", message_ordering=True)
        self._acked: set[bytes] = set()
        self._changed = threading.Condition()
        self.stream: Stream = subscription.pull(self._handle, max_workers=workers)
        self._runner: StreamRunner = self.stream._runner

    def _handle(self, message: Message) -> None:
        with self._changed:
            self._acked.add(message.data)
            message.ack()
            self._changed.notify_all()

    def publish(self, text: bytes) -> None:
        self._topic.publish(text, ordering_key="key").result(PATIENCE)

    def has(self, text: bytes, timeout: float = PATIENCE) -> bool:
        """Whether the message was handled by then."""
        with self._changed:
            return self._changed.wait_for(lambda: text in self._acked, timeout)

    def stand_still(self, seconds: float) -> None:
        with self._runner.core:
            before = self._runner.clock
            self._runner.clock = lambda: before() + seconds
            # the runner may be about to use an earlier time
            self._runner.step(self._runner.clock())


@pytest.fixture(params=[1, 16])
def life(request: pytest.FixtureRequest) -> Iterator[Life]:
    log = Log()
    with PubSub.in_memory(MemoryBackend(faults=log)) as ps:
        life = Life(ps, log, request.param)
        life.publish(b"before")
        assert life.has(b"before")
        yield life


def test_nothing_begins_before_a_commit_was_accepted(life: Life) -> None:
    life.log.down = True
    life.stand_still(AWAY + 1)
    life.publish(b"after")
    assert not life.has(b"after", A_WHILE)
    assert life.log.refused, "it asked the log"
    life.log.down = False
    assert life.has(b"after")


def test_a_short_pause_is_none(life: Life) -> None:
    life.log.down = True
    life.stand_still(AWAY / 2)
    life.publish(b"after")
    assert life.has(b"after")
    life.log.down = False


def test_a_commit_that_was_sent_before_says_nothing() -> None:
    log = Log()
    log.answers.clear()
    with PubSub.in_memory(MemoryBackend(faults=log)) as ps:
        life = Life(ps, log, 1)
        assert log.asked.wait(PATIENCE)
        life.stand_still(AWAY + 1)
        log.down = True
        log.answers.set()  # the first commit is accepted
        life.publish(b"after")
        assert not life.has(b"after", A_WHILE)
        log.down = False
        assert life.has(b"after")
