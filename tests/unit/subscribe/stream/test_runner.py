"""The runner keeps apart decisions from before a rebalance, and events after it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import pytest

from kafka_pubsub.config import FlowControl, RetryTopic, SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.clocks import WallClock
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.model import Answered, Committed, LogEnd, Membership, ReadFrom, StoredRecord, TopicPartition
from kafka_pubsub.subscribe.coordinator import Coordinator
from kafka_pubsub.subscribe.fetch_window import Change
from kafka_pubsub.subscribe.idle_waits import TICK_WAIT
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth
from kafka_pubsub.subscribe.partition.settings import Rules
from kafka_pubsub.subscribe.retry_topic.layout import Layout, by_partition
from kafka_pubsub.subscribe.retry_topic.retry_io import RetryIO
from kafka_pubsub.subscribe.stream.runner import READ, TICK, StreamRunner
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from tests.partition_ids import P

RETRY = "orders.sub.billing.retry"
RECORD = SubscriptionRecord(
    name="billing",
    topic="orders",
    topic_id="id",
    partitions=2,
    options=SubscriptionOptions(),
    retry_topic=RetryTopic(name=RETRY, topic_id="r", positions={0: 0, 1: 0}),
)


class Valves:
    """A log without records that knows who is paused."""

    def __init__(self) -> None:
        #: Records that were asked for, read by read.
        self.asked: list[int] = []
        self.paused: set[int] = set()
        self.refused: dict[TopicPartition, PubSubError] = {}
        #: Offsets that were committed, commit by commit.
        self.commits: list[dict[int, int | None]] = []
        #: Whether commits are answered later, by `answer`.
        self.late = False
        self._answer: Callable[[], None] | None = None

    def subscribe(self, topics: Sequence[str], listener: object) -> None: ...

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        self.asked.append(max_records)
        return ()

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        return dict.fromkeys(partitions, Committed(0, ""))

    committed_unstable = committed

    def membership(self) -> Membership | None:
        return None

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        return dict.fromkeys(partitions, LogEnd(0))

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        return set(partitions)

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        return {}

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(partitions, (0, 0))

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        self.commits.append(
            {place.partition: to.offset for place, to in positions.items() if place.topic == "orders"}
        )
        self._answer = lambda: answered({place: self.refused.get(place) for place in positions})
        if not self.late:
            self.answer()

    def answer(self) -> None:
        """The answer to the last commit comes."""
        answer, self._answer = self._answer, None
        assert answer is not None
        answer()

    def unanswered(self) -> bool:
        return self._answer is not None

    def settle(self) -> bool:
        return self._answer is None

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return (0, 0)

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None: ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.update(place.partition for place in partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(place.partition for place in partitions)

    def close(self) -> None: ...


@pytest.fixture
def log() -> Valves:
    return Valves()


@pytest.fixture
def stream_runner(log: Valves) -> Iterator[StreamRunner]:
    retry_side = RetryIO(MemoryBackend(), RECORD, Layout(RECORD, retry=RETRY), 7, log.membership)
    stream_runner = StreamRunner(
        log,
        RECORD,
        7,
        look_up=lambda: RECORD,
        on_end=lambda: None,
        on_handed_out=lambda ack_id, message: None,
        retry_side=retry_side,
    )
    worker_pool = PullQueue(stream_runner.inbox, stream_runner.wake)
    stream_runner.coordinator = Coordinator(
        Rules(ordered=True), FlowControl(), worker_pool, 7, random.random, retry_side
    )
    stream_runner.ask = lambda call, timeout=None: call()  # type: ignore[method-assign]
    yield stream_runner
    stream_runner.finish()


def test_a_pause_decided_before_a_rebalance_is_not_done_after_it(
    stream_runner: StreamRunner, log: Valves
) -> None:
    """Partition 0 was full, went and came back empty: paused now, nothing would ever resume it."""
    stream_runner._pauses.turn(Change([P[0], P[1]], []))
    stream_runner.assigned([TopicPartition("orders", 0), TopicPartition(RETRY, 0)])
    stream_runner._make_room()
    assert log.paused == {1}


def _commit(offset: int) -> CommitBoth:
    return CommitBoth(offset, "", Commit(0, ""))


@pytest.fixture
def told(stream_runner: StreamRunner, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Offsets of commits that were answered, and whether these were accepted."""
    told: list[tuple[int, bool]] = []

    def answered(commits: Mapping[int, CommitBoth], accepted: Mapping[int, bool], now: float) -> None:
        told.extend((commits[number].offset, accepted[number]) for number in commits)

    monkeypatch.setattr(stream_runner, "post", lambda call: call())
    monkeypatch.setattr(stream_runner.coordinator, "answered", answered)
    monkeypatch.setattr(stream_runner.coordinator, "current", dict)
    return told


@pytest.mark.usefixtures("told")
def test_what_waits_to_be_committed_shares_a_request(stream_runner: StreamRunner, log: Valves) -> None:
    """After a crash handlers of each partition wait for its commits: in turn they would wait for all."""
    stream_runner._to_commit.extend([{P[0]: _commit(3)}, {P[1]: _commit(4)}])
    stream_runner.commit_posted()
    assert log.commits == [{0: 3, 1: 4}]


def test_callbacks_that_looked_slow_while_each_message_was_noted_are_tried_again(
    stream_runner: StreamRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = type(stream_runner.coordinator.partitions.attention)
    monkeypatch.setattr(attention, "careful", True)
    stream_runner.step(0.0)
    stream_runner.inline.pace.slow(0.0)
    stream_runner.step(0.0)
    assert stream_runner.inline.pace.limit(0.0) == 0
    monkeypatch.setattr(attention, "careful", False)
    stream_runner.step(0.0)
    assert stream_runner.inline.pace.limit(0.0) > 0


def test_a_refused_commit_is_no_accepted_one(
    stream_runner: StreamRunner, log: Valves, told: list[tuple[int, bool]]
) -> None:
    """Taken for accepted, acks would count as stored, and retried messages begin unnoted."""
    log.refused[TopicPartition("orders", 1)] = PubSubError("the generation is over")
    stream_runner.send({P[0]: _commit(3), P[1]: _commit(4)})
    assert told == [(3, True), (4, False)]


def test_a_commit_is_not_waited_for_and_no_other_is_sent_before_its_answer(
    stream_runner: StreamRunner, log: Valves, told: list[tuple[int, bool]]
) -> None:
    """Stored later than the next commit, this commit would undo the next."""
    log.late = True
    stream_runner._to_commit.append({P[0]: _commit(3)})
    stream_runner.commit_posted()
    stream_runner._to_commit.append({P[1]: _commit(4)})
    stream_runner.commit_posted()
    assert (log.commits, told) == ([{0: 3}], [])
    log.answer()
    assert told == [(3, True)]
    stream_runner.commit_posted()
    assert log.commits == [{0: 3}, {1: 4}]


def test_a_final_commit_behind_a_commit_that_is_not_answered_is_not_sent(
    stream_runner: StreamRunner, log: Valves, told: list[tuple[int, bool]]
) -> None:
    log.late = True
    stream_runner.send({P[0]: _commit(3)})
    stream_runner.commit({P[0]: _commit(4)})
    assert (log.commits, told) == ([{0: 3}], [(4, False)])


def test_a_final_commit_that_is_not_answered_in_time_counts_as_refused(
    stream_runner: StreamRunner, log: Valves, told: list[tuple[int, bool]]
) -> None:
    """Else its partition, when it comes back, would wait for the answer for ever."""
    log.late = True
    stream_runner.commit({P[0]: _commit(4)})
    assert (log.commits, told) == ([{0: 4}], [(4, False)])


def test_each_tick_looks_at_the_wall_clock(
    stream_runner: StreamRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock may be wrong when a partition is taken over, and be set right later."""
    told: list[float | None] = []
    wall = [5000.0]
    stream_runner.clock, stream_runner.wall = lambda: 100.0, WallClock(lambda: wall[0])
    monkeypatch.setattr(stream_runner.coordinator, "tick", lambda now, wall: told.append(wall))
    stream_runner.step(100.0)
    wall[0] = 4000.0
    stream_runner.step(100.0 + TICK)
    assert told == [4900.0, 3900.0]


def test_an_idle_runner_is_woken_when_the_fetcher_has_run(stream_runner: StreamRunner) -> None:
    """What was acked inline is committed within the interval, though the runner meant to sleep for longer."""
    now = stream_runner.clock()
    stream_runner._dozing = True
    assert stream_runner._idling.sleep(now, TICK) == TICK_WAIT
    stream_runner.stand_in_ends()
    assert stream_runner._wake_up.empty()
    stream_runner._idling.swept(now, busy=True, wake_at=None)
    stream_runner.stand_in_ends()
    assert stream_runner._wake_up.qsize() == 1


class Rebuilding:
    """Of the retry topic, as far as a fetch asks: whether the topic holds up all."""

    def __init__(self) -> None:
        self.rebuilding = True

    def sort_out(self, records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        return records


def test_retry_partitions_are_rebuilt_in_large_reads_however_slow_callbacks_are(
    stream_runner: StreamRunner, log: Valves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits there costs a few numbers a record; at two records a read a million of them took minutes."""
    monkeypatch.setattr(stream_runner.rebalances, "pairs", pairs := Rebuilding())
    monkeypatch.setattr(stream_runner.inline, "limit", lambda now: 2)
    stream_runner.fetch(0.0)
    pairs.rebuilding = False
    stream_runner.fetch(0.0)
    assert log.asked[0] == READ
    assert log.asked[1] < READ


def test_a_sweep_takes_what_was_posted_before_it_and_goes_on(stream_runner: StreamRunner) -> None:
    """Else a fetcher that keeps up keeps the runner from commits and deadlines, as if it stood still."""
    taken: list[int] = []

    def take() -> None:
        taken.append(len(taken))
        if len(taken) < 100:
            stream_runner.post(take)

    stream_runner.post(take)
    stream_runner.take_posted()
    assert taken == [0]
    stream_runner.take_posted()
    assert taken == [0, 1]


def test_what_was_read_is_grouped_by_partition_in_its_order() -> None:
    def record(partition: int, offset: int) -> MemoryRecord:
        return MemoryRecord("orders", partition, offset, None, b"", None, 0)

    rows = [record(0, 5), record(0, 6), record(1, 9), record(0, 7)]
    grouped = by_partition(rows)
    assert {number: [each.offset() for each in some] for number, some in grouped.items()} == {
        P[0]: [5, 6, 7],
        P[1]: [9],
    }
