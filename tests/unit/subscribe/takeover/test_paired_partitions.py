"""What a stream with a retry topic is told by its group in an order that nobody would expect."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import pytest

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, RetryPolicy
from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import DeadlineExceeded, PubSubError
from kafka_pubsub.log.memory import FaultPlan
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.record_fetch import MemoryRecordFetch
from kafka_pubsub.log.ports import LogReader, RebalanceListener
from kafka_pubsub.model import Committed, Ending, Fetched, Membership, NewRecord, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from kafka_pubsub.subscribe.partition.events import MovesAnswered
from kafka_pubsub.subscribe.retry_topic import checkpoint_reader
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveRequest, MoveResult
from kafka_pubsub.subscribe.stream.reading import stream_readings
from kafka_pubsub.subscribe.takeover.paired_partitions import BLOCKED, DEAD, PairedPartitions
from kafka_pubsub.subscribe.takeover.rejoining_reader import DelegatingReader
from kafka_pubsub.subscribe.workers.observer import UNOBSERVED
from tests.checkpoints import headers
from tests.partition_ids import P
from tests.support import until
from tests.unit.subscribe.workers.holding import PATIENCE

BOTH = [TopicPartition("orders", 0), TopicPartition("orders.sub.billing.retry", 0)]


class RevokesFirst(DelegatingReader):
    """A member whose group takes away what it never gave: an assignment that failed is revoked like any other."""

    def __init__(self, reader: LogReader, word: str) -> None:
        super().__init__(reader)
        self._word = word
        self._listener: RebalanceListener | None = None

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._listener = listener
        super().subscribe(topics, listener)

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        listener, self._listener = self._listener, None
        if listener is not None:
            getattr(listener, self._word)(BOTH)
        return super().read(max_records, timeout)


@pytest.mark.parametrize("word", ["revoked", "lost"])
def test_what_goes_before_the_first_assignment_does_not_end_the_stream(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryBackend.reader
    monkeypatch.setattr(
        MemoryBackend, "reader", lambda *names, **options: RevokesFirst(real(*names, **options), word)
    )
    acked = threading.Event()

    def handle(message: Message) -> None:
        message.ack()
        acked.set()

    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=1)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=RetryPolicy())
        with sub.pull(handle) as stream:
            ps.topic("orders").publish(b"1", ordering_key="k").result(PATIENCE)
            assert acked.wait(PATIENCE)
            assert not stream.done()


class AsksInTurn(DelegatingReader):
    """Notes of which log the end is asked for."""

    asked: ClassVar[list[str]] = []

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        self.asked.extend(place.topic for place in partitions)
        return super().reachable_ranges(partitions, timeout)


def test_an_origin_that_the_log_does_not_have_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryBackend.reader
    monkeypatch.setattr(
        MemoryBackend, "reader", lambda *names, **options: AsksInTurn(real(*names, **options))
    )
    monkeypatch.setattr(AsksInTurn, "asked", [])
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=1)
        ps.create_topic("dead")
        sub = ps.create_subscription(
            "billing",
            "orders",
            message_ordering=True,
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
        )
        forged = retry_headers(None, RetryInfo(backend.admin.topic("orders").topic_id, 0, 10))
        backend.cluster.append(BOTH[1].topic, 0, b"forged", b"k", forged)
        with sub.pull(lambda message: message.ack()):
            until(lambda: bool(list(sub.dead_letters())))
        (dead_letter,) = sub.dead_letters()
    assert "offset 10, lies beyond offset 0" in dead_letter.reason
    assert AsksInTurn.asked[0] == BOTH[1].topic, "an honest origin is below what is asked for later"


@pytest.mark.parametrize("clean", [True, False])
def test_a_takeover_from_an_owner_that_did_not_leave_in_good_order_is_counted(clean: bool) -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=1)
        sub = ps.create_subscription("billing", "orders", retry=RetryPolicy(min_backoff=1))
        left = Committed(0, ack_map.encode(AckMap(THEIRS, (), clean), 0))
        backend.admin.set_positions("billing", dict.fromkeys(BOTH, left))
        with sub.pull(Message.ack) as stream:
            until(lambda: stream.stats.commits > 0, patience=PATIENCE)
            (found,) = stream_readings(stream._runner)
    assert found.counts["takeovers"] == (not clean)


OURS, THEIRS = 7, 9


class Held:
    """A log whose answer waits for a transaction of `THEIRS`, and whoever fences; with a runner's coordinator."""

    layout = Layout(
        SubscriptionRecord(
            name="billing", topic="orders", topic_id="id", partitions=1, options=SubscriptionOptions()
        ),
        retry="orders.sub.billing.retry",
    )
    process = OURS

    def __init__(self, writer: int, *, clean: bool) -> None:
        self.coordinator = self.partitions = self
        self._stored = Committed(5, ack_map.encode(AckMap(writer, (), clean), 5))
        self.waited = 0.0
        #: How long it had been waited when somebody was fenced.
        self.fenced_after: list[tuple[int, float]] = []

    def connect(self, *_: object) -> None: ...
    def post(self, *_: object) -> None: ...

    def committed(
        self, places: Sequence[TopicPartition], timeout: float = 0.0
    ) -> dict[TopicPartition, Committed]:
        if not any(writer == THEIRS for writer, _ in self.fenced_after):
            self.waited += timeout
            raise DeadlineExceeded("an open transaction")
        return self.committed_unstable(places)

    def committed_unstable(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        return dict.fromkeys(places, self._stored)

    def fence(self, subscription: str, writer: int) -> None:
        self.fenced_after.append((writer, self.waited))


def fenced(held: Held) -> list[tuple[int, float]]:
    beside = PairedPartitions(held, held, held)  # type: ignore[arg-type]
    assert set(beside._committed(BOTH)) == set(BOTH)
    return held.fenced_after


def test_who_left_in_disorder_and_holds_everybody_up_is_fenced_soon() -> None:
    assert DEAD < BLOCKED
    assert fenced(Held(THEIRS, clean=False)) == [(THEIRS, DEAD)]


def test_who_left_in_good_order_may_still_be_about_to_end_its_transaction() -> None:
    assert fenced(Held(THEIRS, clean=True)) == [(THEIRS, BLOCKED)]


def test_our_own_writer_is_not_the_first_to_be_fenced() -> None:
    """What rests here may have been given up in the middle of suspects; nothing of it is open."""
    held = Held(OURS, clean=False)
    with pytest.raises(DeadlineExceeded):
        fenced(held)
    assert held.fenced_after == [(OURS, BLOCKED)]


class Landed:
    """A runner's coordinator that is told what has landed."""

    layout = Held.layout
    observer = UNOBSERVED

    def __init__(self) -> None:
        self.coordinator = self
        self.moved: list[int] = []
        self.answers: list[MovesAnswered] = []

    def clock(self) -> float:
        return 0.0

    def connect(self, *_: object) -> None: ...
    def post(self, *_: object) -> None: ...

    def move_answered(self, *told: object) -> None:
        self.moved.append(int(str(told[3])))
        self.answers.append(cast("MovesAnswered", told[2]))


def test_a_checkpoint_is_no_message_that_was_moved() -> None:
    held = Landed()
    beside = PairedPartitions(held, held, held)  # type: ignore[arg-type]
    moved = NewRecord(*held.layout.beside(P[0]), b"k", b"", retry_headers(None, RetryInfo("id", 0, 1)))
    told = NewRecord(*held.layout.beside(P[0]), None, b"", headers())
    buried = NewRecord("dead", 0, b"k", b"")
    move_requests = [
        ([moved, buried, told], 2),
        ([told], 0),
        ([moved, moved], None),
        ([buried], None),
        ([], None),
    ]
    for records, at in move_requests:
        move_request = MoveRequest(P[0], 1, records, {}, Membership("", None), at)
        beside.move_answered(MoveResult(move_request, Ending.STORED, range(4, 4 + len(records))))
    assert held.moved == [1, 0, 2, 0, 0]
    assert [answer.checkpoint for answer in held.answers] == [6, 4, None, None, None]


def test_a_checkpoint_of_an_earlier_retry_topic_is_not_waited_for() -> None:
    backend = MemoryBackend()
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=1)
        sub = ps.create_subscription("billing", "orders", message_ordering=True)
        text = ack_map.encode(AckMap(THEIRS, ((5, 6),), checkpoint=Named(7, 5), more=True), 0)
        with backend.cluster.change():
            assert backend.cluster.group("billing").store(BOTH[1], Committed(0, text)) is None
        ps.topic("orders").publish(b"1", ordering_key="k").result(PATIENCE)
        began = time.monotonic()
        with sub.pull(lambda message: message.ack()):
            until(lambda: sub.state().lag == 0)
        assert time.monotonic() - began < checkpoint_reader._PATIENCE


class Counted(FaultPlan):
    """Counts requests by what they ask for."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()

    def request(self, operation: str, name: str) -> PubSubError | None:
        self.requests[operation] += 1
        return None


def requests_of_a_takeover(partitions: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is asked for when all partitions come at once, each with a checkpoint to be read."""
    plan, retry = Counted(), BOTH[1].topic
    fetched: list[set[TopicPartition]] = []
    fetch_all = MemoryRecordFetch.fetch_all

    def counted(
        fetch: MemoryRecordFetch, wanted: Mapping[TopicPartition, Sequence[int]], size: int, seconds: float
    ) -> Mapping[TopicPartition, Fetched]:
        fetched.append(set(wanted))
        return fetch_all(fetch, wanted, size, seconds)

    monkeypatch.setattr(MemoryRecordFetch, "fetch_all", counted)
    backend = MemoryBackend(faults=plan)
    with PubSub.in_memory(backend) as ps:
        ps.create_topic("orders", partitions=partitions)
        sub = ps.create_subscription("billing", "orders", message_ordering=True, retry=RetryPolicy())
        place_of = {number: TopicPartition(retry, number) for number in range(partitions)}
        metadata = ack_map.encode(AckMap(THEIRS, (), clean=True, checkpoint=Named(0, 1 << 20), more=True), 0)
        for number in range(partitions):
            backend.cluster.append(retry, number, None, None, headers(1 << 20))
        with backend.cluster.change():
            group = backend.cluster.group("billing")
            for place in place_of.values():
                group.offsets[place] = Committed(0, metadata)
        plan.requests.clear()
        with sub.pull(lambda message: message.ack()) as stream:
            until(lambda: len(stream.stats.partitions) == partitions, "all partitions")
            requests = Counter(plan.requests)
        assert set(place_of.values()) == fetched[0], "they are read together"
        requests["checkpoints"] = len(fetched)
    return requests


def test_as_many_requests_for_a_hundred_partitions_as_for_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = requests_of_a_takeover(10, monkeypatch), requests_of_a_takeover(100, monkeypatch)
    for each in ("committed", "reachable_ranges", "checkpoints"):
        assert many[each] == few[each], each
