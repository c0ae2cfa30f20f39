"""Dead letters: written without positions, completed with them, and given up when none come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

import pytest

from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, InvalidArgument
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.transactions import MemoryTransactions
from kafka_pubsub.model import (
    Committed,
    Ending,
    Further,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    PositionsLater,
    TopicPartition,
)
from kafka_pubsub.subscribe.retry_topic import dead_letter_writer
from kafka_pubsub.subscribe.retry_topic import retry_io as retry_side_module
from kafka_pubsub.subscribe.retry_topic.dead_letter_writer import DeadLetterWriter, Written
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveRequest, MoveResult
from tests.partition_ids import P

HERE = Membership("billing", "first")
BILLING = SubscriptionRecord(
    name="billing", topic="orders", topic_id="id", partitions=1, options=SubscriptionOptions()
)
LAYOUT = Layout(BILLING, retry="orders.sub.billing.retry")
PATIENCE = 10.0
TO = {TopicPartition("orders", 0): Committed(7, "map")}


class Log:
    """Transactions whose records are taken, but for records that the test answers itself."""

    transactional_id = "me"

    def __init__(self) -> None:
        self.answers: list[Callable[[Sequence[NewRecord]], Outcome]] = []
        self.stored: list[Positions] = []
        self.written: list[bytes | None] = []
        self.aborted = SimpleQueue[int]()
        self.ending = Ending.STORED
        self.fenced: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        self.go.wait(PATIENCE)
        if self.answers:
            return self.answers.pop(0)(records)
        assert callable(positions)
        given = positions(range(len(records)))
        if given is None:
            self.aborted.put(len(records))
            return Outcome(Ending.ABORTED, ())
        assert isinstance(given, Further)
        offsets = range(len(records) + len(given.records))
        found = given.positions(offsets) if callable(given.positions) else given.positions
        assert not isinstance(found, Further)
        self.stored.append(found or {})
        self.written += [record.value for record in (*records, *given.records)]
        return Outcome(self.ending, offsets)

    def fence(self, transactional_id: str) -> None:
        self.fenced.append(transactional_id)
        if self.ending is Ending.UNKNOWN:
            raise BrokerUnavailable("the topic is away")

    def close(self) -> None:
        pass


class Scene:
    def __init__(self) -> None:
        self.log = Log()
        self.written: SimpleQueue[Written] = SimpleQueue()
        self.move_results: SimpleQueue[MoveResult] = SimpleQueue()
        self.writer = DeadLetterWriter(lambda: self.log, self.written.put, self.move_results.put)

    def next_written(self) -> Written:
        return self.written.get(timeout=PATIENCE)

    def landed(self) -> MoveResult:
        return self.move_results.get(timeout=PATIENCE)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.log.go.set()
    assert scene.writer.close(PATIENCE)


def move_request(partition: int = 0, epoch: int = 1, count: int = 1) -> MoveRequest:
    return MoveRequest(P[partition], epoch, [NewRecord("graves", 0, b"k", b"v")] * count, {}, HERE)


def rest(partition: int, epoch: int) -> MoveRequest:
    """What completes a transaction of dead letters without a checkpoint."""
    return MoveRequest(P[partition], epoch, [], TO, HERE)


def test_positions_come_when_the_dead_letters_are_written(scene: Scene) -> None:
    scene.writer.send(move_request(count=2))
    written = scene.next_written()
    assert (written.taken, written.move_request.partition) == (True, P[0])
    assert scene.move_results.empty()
    assert scene.writer.complete(rest(0, 1))
    move_result = scene.landed()
    assert (move_result.ending, move_result.move_request.positions, list(move_result.offsets)) == (
        Ending.STORED,
        TO,
        [0, 1],
    )
    assert scene.log.stored == [TO]


def test_a_checkpoint_is_written_behind_the_dead_letters_and_named_by_its_own_offset(scene: Scene) -> None:
    scene.writer.send(move_request(count=2))
    assert scene.next_written().taken
    place = TopicPartition("orders", 0)
    parts = [NewRecord("retry", 0, None, value) for value in (b"part 1", b"part 2")]
    named = MoveRequest(
        P[0], 1, parts, TO, HERE, 0, lambda offset: {place: Committed(7, f"checkpoint at {offset}")}
    )
    assert scene.writer.complete(named)
    move_result = scene.landed()
    assert (move_result.ending, move_result.checkpoint) == (Ending.STORED, 2)
    assert scene.log.written == [b"v", b"v", b"part 1", b"part 2"]
    assert scene.log.stored == [{place: Committed(7, "checkpoint at 2")}]


def test_without_positions_the_dead_letters_are_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_writer, "PATIENCE", 0.01)
    scene.writer.send(move_request())
    assert scene.next_written().taken
    assert scene.log.aborted.get(timeout=PATIENCE) == 1
    assert not scene.writer.complete(rest(0, 1))
    assert scene.move_results.empty()


def test_positions_of_another_ownership_complete_nothing(scene: Scene) -> None:
    scene.writer.send(move_request(epoch=2))
    assert scene.next_written().taken
    assert not scene.writer.complete(rest(0, 1))
    assert not scene.writer.complete(rest(1, 2))
    assert scene.writer.complete(rest(0, 2))
    assert scene.landed().ending is Ending.STORED


def test_what_waits_in_line_is_not_tried_when_the_topic_is_away(scene: Scene) -> None:
    scene.log.go.clear()
    away = DeadlineExceeded("no answer")
    scene.log.answers = [lambda _: Outcome(Ending.ABORTED, (), away)]
    for partition in range(3):
        scene.writer.send(move_request(partition))
    scene.log.go.set()
    told = [scene.next_written() for _ in range(3)]
    assert [(each.move_request.partition, each.taken, each.reason) for each in told] == [
        (P[partition], False, away) for partition in range(3)
    ]
    assert scene.log.answers == []
    scene.writer.send(move_request(1))
    assert scene.next_written().taken, "what is sent afterwards is tried"
    assert scene.writer.complete(rest(1, 1))
    assert scene.landed().ending is Ending.STORED


def test_a_refused_record_is_reported_and_the_next_batch_is_tried(scene: Scene) -> None:
    scene.log.go.clear()
    refused = {1: InvalidArgument("too large")}
    scene.log.answers = [lambda _: Outcome(Ending.ABORTED, (), refused[1], refused)]
    scene.writer.send(move_request(0, count=2))
    scene.writer.send(move_request(1))
    scene.log.go.set()
    first, second = scene.next_written(), scene.next_written()
    assert (first.taken, first.refused) == (False, refused)
    assert (second.taken, second.move_request.partition) == (True, P[1])


def test_an_unknown_outcome_is_reported_though_the_topic_is_away(scene: Scene) -> None:
    scene.log.ending = Ending.UNKNOWN
    scene.writer.send(move_request())
    assert scene.next_written().taken
    assert scene.writer.complete(rest(0, 1))
    assert scene.landed().ending is Ending.UNKNOWN
    assert scene.log.fenced == ["me"]
    scene.log.ending = Ending.STORED


def test_closing_waits_for_no_positions(scene: Scene) -> None:
    scene.writer.send(move_request())
    assert scene.next_written().taken
    assert scene.writer.close(PATIENCE)
    with pytest.raises(Empty):
        scene.move_results.get_nowait()
    assert scene.log.aborted.get(timeout=PATIENCE) == 1


def test_what_a_dead_owner_left_open_is_ended_under_both_of_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced: list[str] = []
    monkeypatch.setattr(MemoryTransactions, "fence", lambda self, name: fenced.append(name))
    retry_side = RetryIO(MemoryBackend(), BILLING, LAYOUT, 1, lambda: None)
    retry_side.fence("billing", 7)
    assert retry_side.close(PATIENCE)
    assert sorted(fenced) == ["billing-7", "billing-7-dead"]


def test_a_fence_of_dead_letters_that_does_not_return_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = threading.Event()

    def fence(self: MemoryTransactions, name: str) -> None:
        if name.endswith("-dead"):
            away.wait(PATIENCE)

    monkeypatch.setattr(MemoryTransactions, "fence", fence)
    monkeypatch.setattr(retry_side_module, "DEAD_LETTERS_FENCING", 0.01)
    monkeypatch.setattr(retry_side_module, "DEAD_LETTERS_CLOSING", 0.01)
    retry_side = RetryIO(MemoryBackend(), BILLING, LAYOUT, 1, lambda: None)
    retry_side.fence("billing", 7)
    assert retry_side.close(PATIENCE)
    away.set()
