"""A stream's reports to its history: reports before they take effect, and exactly the reports that count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.history.recorder import Recorder
from kafka_pubsub.model import Committed, Ending, Membership, Message, Run
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named, split
from kafka_pubsub.subscribe.formats.record import RetryInfo, retry_headers
from kafka_pubsub.subscribe.partition.effects import Commit, CommitBoth, MovedRecord, StoreMoves, Withdraw
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState
from kafka_pubsub.subscribe.partition.settings import Found, LogStart
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.retry_topic.transaction_thread import MoveRequest, MoveResult
from kafka_pubsub.subscribe.workers.lease_runner import BatchLeaseRunner, LeaseRunner
from kafka_pubsub.subscribe.workers.pull_queue import PullQueue
from kafka_pubsub.subscribe.workers.thread_workers import BatchWorkers
from tests.checkpoints import made
from tests.partition_ids import P
from tests.support import FakeBody
from tests.unit.subscribe.workers.holding import PATIENCE, Reported

Events = list[tuple[Any, ...]]
RECORD = SubscriptionRecord(
    name="s", topic="t", topic_id="id", partitions=1, options=SubscriptionOptions(), positions={}
)


class Stream:
    """Reports with a history, and a way to read this history."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.file = HistoryFile(path, role="subscriber", topic="t", subscription="s", segment=1 << 16)
        self.reports = Reported()
        self.evidence = self.reports.observer = Recorder(self.file, lambda: Layout(RECORD, retry="t.retry"))

    def lease(self, length: int = 1, attempt: int = 1) -> Lease:
        records = [FakeBody(offset=10 + at, key=b"k") for at in range(length)]
        return Lease(P[0], 1, b"k", records, attempt)

    def lease_runner(self, length: int = 1, attempt: int = 1) -> LeaseRunner:
        lease = self.lease(length, attempt)
        lease.lease_runner = lease_runner = LeaseRunner(lease, self.reports)
        return lease_runner

    def walk(self, lease_runner: LeaseRunner, callback: Callable[[Message], object]) -> LeaseReport:
        return lease_runner.run(self.evidence.around(callback))

    def expire(self, lease: Lease, state: LeaseState = LeaseState.EXPIRED) -> None:
        """The steps of core and runner when a deadline has passed."""
        lease.state = state
        self.evidence.expiring([Withdraw([lease])])

    def told(self, *fields: str) -> Events:
        lines = self._path.read_bytes().split(b"\0")[0].splitlines()[1:]
        events = [json.loads(line) for line in lines if line]
        return [(event["event"], event["offset"], *(event[field] for field in fields)) for event in events]


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(tmp_path / "history.jsonl")
    yield stream
    stream.file.close()


def test_a_run_reports_each_message_from_its_beginning_to_its_end(stream: Stream) -> None:
    stream.walk(stream.lease_runner(2, attempt=3), lambda message: message.ack())
    verbs = ["deliver", "ack", "handler_end"]
    assert stream.told() == [(verb, offset) for offset in (10, 11) for verb in verbs]
    attempts = [event["attempt"] for event in _events(stream) if event["event"] == "ack"]
    assert attempts == [3, 1], "the followers of a redelivered message were never delivered"


def _events(stream: Stream) -> list[dict[str, Any]]:
    lines = stream._path.read_bytes().split(b"\0")[0].splitlines()[1:]
    return [json.loads(line) for line in lines if line]


def test_a_callback_that_raises_has_ended_and_nacked(stream: Stream) -> None:
    def handle(message: Message) -> None:
        raise ValueError("broken")

    assert stream.walk(stream.lease_runner(), handle).outcome is LeaseOutcome.NACKED
    assert [verb for verb, _ in stream.told()] == ["deliver", "handler_end", "nack"]
    assert _events(stream)[1]["error"] == "ValueError: broken"


def test_an_ack_before_raising_is_an_ack(stream: Stream) -> None:
    def handle(message: Message) -> None:
        message.ack()
        raise ValueError("broken")

    assert stream.walk(stream.lease_runner(), handle).outcome is LeaseOutcome.FINISHED
    assert [verb for verb, _ in stream.told()] == ["deliver", "ack", "handler_end"]


def test_a_second_report_is_stale_and_one_that_is_refused_is_none(stream: Stream) -> None:
    def handle(message: Message) -> None:
        with pytest.raises(InvalidArgument):
            message.nack(delay=-1)
        with pytest.raises(InvalidArgument):
            message.extend(601)
        message.extend(5)
        message.nack(delay=2)
        message.ack()
        message.extend(5)

    stream.walk(stream.lease_runner(), handle)
    verbs = ["deliver", "extend", "nack", "stale", "stale", "handler_end"]
    assert [verb for verb, _ in stream.told()] == verbs
    assert _events(stream)[2]["delay"] == 2


def test_a_message_that_is_given_up_is_told_apart_from_a_nack(stream: Stream) -> None:
    stream.walk(stream.lease_runner(), lambda message: message.dead_letter("an order of the old form"))
    stream.walk(stream.lease_runner(), lambda message: message.nack())
    nacks = [event for event in _events(stream) if event["event"] == "nack"]
    assert [(nack["delay"], nack.get("rejected")) for nack in nacks] == [(None, True), (None, None)]


def test_extending_to_nothing_is_a_nack(stream: Stream) -> None:
    stream.walk(stream.lease_runner(), lambda message: message.extend(0))
    assert [verb for verb, _ in stream.told()] == ["deliver", "nack", "handler_end"]


def test_an_expiry_is_reported_of_the_message_with_the_callback(stream: Stream) -> None:
    lease_runner = stream.lease_runner(3)

    def handle(message: Message) -> None:
        if message.offset == 11:
            stream.expire(lease_runner.lease)  # the runner last saw the holder at its first message
        message.ack()

    release = stream.walk(lease_runner, handle)
    assert (release.done, release.outcome) == (1, LeaseOutcome.NACKED)
    assert stream.told()[3:] == [("deliver", 11), ("expire", 11), ("stale", 11), ("handler_end", 11)]


def test_an_ack_that_was_reported_before_a_deadline_counts(stream: Stream) -> None:
    lease_runner = stream.lease_runner(2)

    def handle(message: Message) -> None:
        message.ack()
        stream.expire(lease_runner.lease)

    assert stream.walk(lease_runner, handle).done == 1
    assert stream.told() == [("deliver", 10), ("ack", 10), ("handler_end", 10)]


def test_a_message_that_begins_when_its_lease_is_over_has_expired(stream: Stream) -> None:
    lease_runner = stream.lease_runner()
    message = lease_runner.begin()
    assert message is not None
    stream.expire(lease_runner.lease)
    stream.evidence.begins(message)
    assert stream.told() == [("deliver", 10), ("expire", 10)]


def test_of_a_kept_message_the_deadline_wins(stream: Stream) -> None:
    lease_runner = stream.lease_runner()
    kept: list[Message] = []
    assert stream.walk(lease_runner, kept.append).outcome is LeaseOutcome.KEPT
    kept[0].ack()
    stream.expire(lease_runner.lease, LeaseState.OVER)
    assert [verb for verb, _ in stream.told()] == ["deliver", "handler_end", "ack", "expire"]


def test_a_lease_runner_that_is_through_doesnt_expire(stream: Stream) -> None:
    lease_runner = stream.lease_runner()
    stream.walk(lease_runner, lambda message: message.ack())
    stream.expire(lease_runner.lease)
    assert "expire" not in [verb for verb, _ in stream.told()]


def batch(stream: Stream, length: int, callback: Callable[[list[Message]], object]) -> LeaseReport:
    lease = stream.lease(length)
    worker_pool = BatchWorkers(callback, 10, 0.0, 1, stream.reports, "test")
    worker_pool.take([lease])
    stream.reports.wait_until(lambda: bool(stream.reports.releases))
    worker_pool.close(PATIENCE)
    return stream.reports.releases[0]


def test_a_runs_reports_are_reported_when_they_are_final(stream: Stream) -> None:
    def handle(messages: list[Message]) -> None:
        messages[3].ack()
        messages[2].nack(7)
        assert [verb for verb, _ in stream.told()] == ["deliver"] * 4

    release = batch(stream, 4, handle)
    assert (release.done, release.delay) == (2, 7)
    ends = [("handler_end", offset) for offset in range(10, 14)]
    assert stream.told()[4:] == [("ack", 10), ("ack", 11), ("nack", 12), *ends]
    assert len({event["batch"] for event in _events(stream)[:4]}) == 1


def test_of_a_run_that_raised_the_first_unfinished_message_failed(stream: Stream) -> None:
    def handle(messages: list[Message]) -> None:
        messages[0].ack()
        raise ValueError

    batch(stream, 2, handle)
    assert stream.told()[2:4] == [("ack", 10), ("nack", 11)]


def test_of_a_run_that_expired_what_was_acked_in_time_counts(stream: Stream) -> None:
    lease = stream.lease(3)
    lease.lease_runner = lease_runner = BatchLeaseRunner(lease, stream.reports)
    messages = lease_runner.begin_run()
    messages[0].ack()
    stream.expire(lease)
    messages[1].ack()
    assert lease_runner.end_run().done == 1
    outcomes = [event for event in stream.told()[3:] if event[0] != "handler_end"]
    assert outcomes == [("expire", 10), ("stale", 11), ("ack", 10), ("expire", 11)]


def test_a_box_reports_the_end_at_once(stream: Stream) -> None:
    box = PullQueue(stream.reports, lambda: None)
    box.take([stream.lease()])
    (message,) = box.receive(1, 0, lambda: False)
    assert [verb for verb, _ in stream.told()] == ["deliver", "handler_end"]
    message.ack()
    assert stream.told()[-1] == ("ack", 10)


def test_without_a_history_a_callback_is_called_as_it_is() -> None:
    def handle(message: Message) -> None:
        message.ack()

    assert Reported().observer.around(handle) is handle


BESIDE = "t.sub.s.retry"


#: A checkpoint of the retry partition's runs (1, 2) and (4, 6), by the name in commits.
NINE = Named(9, 5)


def both(position: int, *runs: Run, named: Named | None = None) -> CommitBoth:
    text = ack_map.encode(AckMap(7, runs, checkpoint=named, more=named is not None), position)
    return CommitBoth(0, text if not position else "", Commit(position, text))


def retries(stream: Stream) -> list[Any]:
    return [event["retry"] for event in _events(stream) if event["event"] in ("assign", "commit")]


def land(stream: Stream, moves: Sequence[MovedRecord], *offsets: int, epoch: int = 1, nonce: int = 5) -> None:
    """These records, and a checkpoint, are written."""
    parts = split(made((1, 2), (4, 6), main=[(3, 4)], nonce=nonce))
    forecast = both(0, named=Named(0, nonce))
    stream.evidence.storing(P[0], epoch, StoreMoves(moves, forecast, parts, (), lambda offset: forecast))
    move_request = MoveRequest(P[0], epoch, [], {}, Membership("", None), len(moves))
    stream.evidence.move_answered(
        MoveResult(move_request, Ending.STORED if offsets else Ending.ABORTED, offsets)
    )


def test_what_a_checkpoint_reports_is_reported_with_each_commit_that_names_it(stream: Stream) -> None:
    land(stream, [], 9)
    for commit in (both(0, (7, 8), named=NINE), both(5, (6, 8), named=NINE), both(6)):
        stream.evidence.committing({P[0]: commit})
    assert retries(stream) == [[0, [1, 2, 4, 6]], [0, [1, 2, 4, 6, 7, 8]], [5, [5, 8]], [6, []]]
    mains = [event["main"] for event in _events(stream) if event["event"] == "commit"]
    assert mains == [[0, [3, 4]], [0, [3, 4, 7, 8]], [0, []], [0, []]]
    kinds = {event["event"] for event in _events(stream)}
    assert kinds == {"commit", "answer"}, "a checkpoint is no move"


def test_what_moves_beside_a_checkpoint_is_reported_where_it_answered(stream: Stream) -> None:
    info = RetryInfo("id", 0, 10, attempt=2)
    moved = MovedRecord(FakeBody(offset=10, key=b"k"), retry_headers((), info))
    land(stream, [moved], 8, 9)
    (move,) = [event for event in _events(stream) if event["event"] == "relocate"]
    assert [each[0] for each in move["moves"]] == [10]
    assert _events(stream)[-1]["placed"] == [[10, 8]]


def test_the_checkpoint_of_the_last_owner_is_reported_at_the_beginning(stream: Stream) -> None:
    stored = Committed(*both(0, (7, 8), named=NINE).retry)
    retry = LogStart(0, ((7, 8),), in_checkpoint=[(1, 2), (4, 6)])
    stream.evidence.assigned(
        P[0], 1, Committed(0, ""), stored, Found(BESIDE, "id", retry=retry, checkpoint=NINE)
    )
    stream.evidence.assigned(P[0], 1, Committed(0, ""), stored, None)
    stream.evidence.committing({P[0]: both(0, (7, 9), named=NINE)})
    assert retries(stream) == [[0, [1, 2, 4, 6, 7, 8]], [0, [1, 2, 4, 6, 7, 8]], [0, [1, 2, 4, 6, 7, 9]]]


def test_old_checkpoints_are_forgotten(stream: Stream) -> None:
    for nonce in range(100):
        land(stream, [], 9, nonce=nonce)
    assert max(map(len, stream.evidence._recorded.values())) < 20
