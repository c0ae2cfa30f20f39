"""The mover: what shares a transaction, and what each flight is told."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue

import pytest

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition, InvalidArgument, PubSubError
from kafka_pubsub.model import (
    Committed,
    Ending,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    PositionsLater,
    TopicPartition,
)
from kafka_pubsub.subscribe.retry_topic.transaction_thread import (
    MOST_BYTES,
    MoveRequest,
    MoveResult,
    TransactionThread,
)
from tests.partition_ids import P

HERE = Membership("billing", "first")
LATER = Membership("billing", "second")
PATIENCE = 10.0

Answer = Callable[[Sequence[NewRecord]], Outcome]


def stored(records: Sequence[NewRecord]) -> Outcome:
    return Outcome(Ending.STORED, range(100, 100 + len(records)))


class Log:
    """Transactions that are answered as the test says, in turn; then all are stored."""

    transactional_id = "me"

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[list[NewRecord], Mapping[TopicPartition, Committed], Membership]] = []
        self.fenced: list[str] = []
        self.fence_fails: list[PubSubError] = []
        self.go = threading.Event()
        self.go.set()
        self.closed = False

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        self.go.wait(PATIENCE)
        found = positions(range(100, 100 + len(records))) if callable(positions) else positions
        assert isinstance(found, dict)
        assert membership is not None
        self.asked.append((list(records), found, membership))
        return (self.answers.pop(0) if self.answers else stored)(records)

    def fence(self, transactional_id: str) -> None:
        if self.fence_fails:
            raise self.fence_fails.pop()
        self.fenced.append(transactional_id)

    def close(self) -> None:
        self.closed = True


class Scene:
    def __init__(self) -> None:
        self.log = Log()
        self.move_results: SimpleQueue[MoveResult] = SimpleQueue()
        self.mover = TransactionThread(lambda: self.log, self.move_results.put)

    def land(self, count: int) -> dict[int, MoveResult]:
        """The next move results, by partition."""
        some = [self.move_results.get(timeout=PATIENCE) for _ in range(count)]
        return {move_result.move_request.partition.partition: move_result for move_result in some}

    def together(self, *move_requests: MoveRequest) -> None:
        """Sent while the mover is busy, so that they are there at its next look."""
        self.log.go.clear()
        self.mover.send(move_request(99))
        for each in move_requests:
            self.mover.send(each)
        self.log.go.set()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.log.go.set()
    assert scene.mover.close(PATIENCE)


def move_request(partition: int, *values: bytes, membership: Membership = HERE) -> MoveRequest:
    records = [NewRecord("orders.sub.billing.retry", partition, b"k", value) for value in values or (b"v",)]
    positions = {TopicPartition("orders", partition): Committed(5, "map")}
    return MoveRequest(P[partition], 1, records, positions, membership)


def test_move_requests_that_come_together_share_a_transaction_and_each_learns_its_offsets(
    scene: Scene,
) -> None:
    scene.together(move_request(0, b"a", b"b"), move_request(1, b"c"))
    move_results = scene.land(3)
    assert {
        number: list(move_result.offsets) for number, move_result in move_results.items() if number != 99
    } in (
        {0: [100, 101], 1: [102]},
        {0: [101, 102], 1: [103]},
    )
    assert len(scene.log.asked) <= 2
    assert all(move_result.ending is Ending.STORED for move_result in move_results.values())


def test_positions_of_all_move_requests_are_in_the_transaction(scene: Scene) -> None:
    scene.together(move_request(0), move_request(1))
    scene.land(3)
    places = {place.partition for _, positions, _ in scene.log.asked for place in positions}
    assert places == {0, 1, 99}


def test_each_checkpoint_is_named_by_its_own_offset(scene: Scene) -> None:
    def with_checkpoint(number: int, *values: bytes) -> MoveRequest:
        place = TopicPartition("orders", number)
        made = move_request(number, *values, b"checkpoint")
        return made._replace(
            checkpoint=len(values), named=lambda offset: {place: Committed(5, f"checkpoint at {offset}")}
        )

    scene.together(with_checkpoint(0, b"a", b"b"), move_request(1), with_checkpoint(2))
    move_results = scene.land(4)
    said = {
        place.partition: to.metadata for _, positions, _ in scene.log.asked for place, to in positions.items()
    }
    assert said[1] == "map"
    for number in (0, 2):
        assert move_results[number].checkpoint == move_results[number].offsets[-1]
        assert said[number] == f"checkpoint at {move_results[number].checkpoint}"
    assert move_results[1].checkpoint is None


def test_a_full_transaction_takes_no_further_move_request(scene: Scene) -> None:
    half = bytes(MOST_BYTES // 2)
    scene.together(*(move_request(number, half) for number in range(4)))
    scene.land(5)
    move_requests = [{record.partition for record in records} - {99} for records, _, _ in scene.log.asked]
    assert max(map(len, move_requests)) == 2
    assert set().union(*move_requests) == {0, 1, 2, 3}


class Records(list[NewRecord]):
    """May be watched while others hold the lock."""


def test_what_has_answered_isnt_held_while_there_is_nothing_to_do(scene: Scene) -> None:
    records = Records(move_request(0).records)
    watched = weakref.ref(records)
    scene.mover.send(move_request(0)._replace(records=records))
    del records
    scene.land(1)
    scene.mover.fence("another", PATIENCE)  # the mover has gone on
    gc.collect()
    assert watched() is None


def test_a_move_request_is_never_sent_under_a_newer_membership(scene: Scene) -> None:
    scene.together(move_request(0), move_request(1, membership=LATER))
    scene.land(3)
    for records, _, membership in scene.log.asked:
        assert all((record.partition == 1) == (membership is LATER) for record in records)


def test_a_refused_record_concerns_its_own_move_request_only(scene: Scene) -> None:
    def refuse(records: Sequence[NewRecord]) -> Outcome:
        values = [record.value for record in records]
        if b"too large" not in values:  # on a busy machine the request may come alone
            return stored(records)
        at = values.index(b"too large")
        why = InvalidArgument("too large")
        return Outcome(Ending.ABORTED, (), why, {at: why})

    scene.log.go.clear()
    scene.mover.send(move_request(0, b"fine"))
    scene.mover.send(move_request(1, b"fine", b"too large"))
    scene.mover.send(move_request(2, b"fine"))
    scene.log.answers = [refuse] * 4
    scene.log.go.set()
    move_results = scene.land(3)
    assert (move_results[0].ending, move_results[2].ending) == (Ending.STORED, Ending.STORED)
    assert move_results[1].ending is Ending.ABORTED
    assert list(move_results[1].refused) == [1]


def test_an_aborted_transaction_lands_all_of_it_with_the_reason(scene: Scene) -> None:
    why = FailedPrecondition("the group has moved on")
    scene.log.answers = [lambda records: Outcome(Ending.ABORTED, (), why)]
    scene.mover.send(move_request(0))
    move_result = scene.land(1)[0]
    assert (move_result.ending, move_result.reason, dict(move_result.refused)) == (Ending.ABORTED, why, {})


def test_after_an_unknown_ending_our_own_id_is_fenced_before_anybody_is_reported(scene: Scene) -> None:
    scene.log.answers = [lambda records: Outcome(Ending.UNKNOWN, (), BrokerUnavailable("gone"))]
    fenced_when_reported: list[list[str]] = []

    def move_answered(move_result: MoveResult) -> None:
        fenced_when_reported.append(list(scene.log.fenced))
        scene.move_results.put(move_result)

    scene.mover._move_answered = move_answered
    scene.mover.send(move_request(0))
    assert scene.land(1)[0].ending is Ending.UNKNOWN
    assert fenced_when_reported == [["me"]]


def test_what_no_log_could_take_is_aborted(scene: Scene) -> None:
    def refuse(records: Sequence[NewRecord]) -> Outcome:
        raise InvalidArgument("a record without a topic")

    scene.log.answers = [refuse]
    scene.mover.send(move_request(0))
    assert scene.land(1)[0].ending is Ending.ABORTED


def test_a_dead_owners_id_is_fenced_in_between(scene: Scene) -> None:
    scene.mover.fence("dead", PATIENCE)
    assert scene.log.fenced == ["dead"]
    scene.log.fence_fails = [BrokerUnavailable("gone")]
    with pytest.raises(BrokerUnavailable):
        scene.mover.fence("dead", PATIENCE)


def test_closing_lets_land_what_was_sent(scene: Scene) -> None:
    scene.mover.send(move_request(0))
    assert scene.mover.close(PATIENCE)
    assert scene.land(1)[0].ending is Ending.STORED
    assert scene.log.closed


def test_move_requests_that_fail_together_without_a_name_go_alone_afterwards(scene: Scene) -> None:
    def without_culprit(records: Sequence[NewRecord]) -> Outcome:
        if any(record.value == b"bad" for record in records):
            return Outcome(Ending.ABORTED, (), BrokerUnavailable("no answer"))
        return stored(records)

    scene.log.answers = [without_culprit] * 100
    left = {0, 1, 2, 3}
    for _ in range(2):
        scene.together(*(move_request(number, b"bad" if number == 2 else b"good") for number in sorted(left)))
        move_results = scene.land(1 + len(left))
        left -= {
            number for number, move_result in move_results.items() if move_result.ending is Ending.STORED
        }
    assert left == {2}
