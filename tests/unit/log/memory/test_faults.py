"""Fault plans: what was done, what the caller is told, and that nothing waits under a clock of the test's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, FailedPrecondition, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, VirtualClock
from kafka_pubsub.log.memory.writer import MemoryWriter
from kafka_pubsub.model import Committed, StoredRecord, TopicPartition
from tests.support import commit
from tests.unit.log.memory.driver import Process, cluster_of

AT = TopicPartition("t", 0)


class Script(FaultPlan):
    """Hands out the given outcomes, then none."""

    def __init__(
        self, *outcomes: RequestOutcome, delays: tuple[float, ...] = (), limit: int | None = None
    ) -> None:
        self.outcomes = list(outcomes)
        self.delays = list(delays)
        self.limit = limit
        self.errors: dict[str, PubSubError] = {}
        self.broken: PubSubError | None = None

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        return self.outcomes.pop(0) if self.outcomes else RequestOutcome.DONE

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        return self.outcomes.pop(0) if self.outcomes else RequestOutcome.DONE

    def report_delay(self, topic: str, key: bytes | None) -> float:
        return self.delays.pop(0) if self.delays else 0.0

    def read_limit(self, group: str, member: str, limit: int) -> int:
        return limit if self.limit is None else self.limit

    def read_error(self, group: str, member: str) -> PubSubError | None:
        return self.broken

    def request(self, operation: str, name: str) -> PubSubError | None:
        return self.errors.get(operation)


def _owner(plan: FaultPlan) -> Process:
    cluster, _ = cluster_of("t", partitions=1)
    owner = Process(cluster, "a", "t", faults=plan)
    owner.read()
    owner.read()
    return owner


def _writer(plan: FaultPlan) -> tuple[MemoryBackend, MemoryWriter, VirtualClock]:
    cluster, clock = cluster_of("t", partitions=1)
    backend = MemoryBackend(cluster=cluster, faults=plan)
    return backend, backend.writer(Batching(), 1_000_000), clock


def test_a_refused_commit_is_not_stored() -> None:
    owner = _owner(Script(RequestOutcome.REFUSED))
    answer = commit(owner.reader, {AT: Committed(3, "")})
    assert isinstance(answer[AT], BrokerUnavailable)
    assert owner.reader.committed([AT]) == {AT: Committed(None, "")}


def test_a_commit_whose_answer_is_lost_is_stored() -> None:
    owner = _owner(Script(RequestOutcome.ANSWER_LOST))
    answer = commit(owner.reader, {AT: Committed(3, "")})
    assert isinstance(answer[AT], DeadlineExceeded)
    assert owner.reader.committed([AT]) == {AT: Committed(3, "")}


def test_a_refused_append_leaves_nothing_and_the_next_ones_go_on() -> None:
    """As inside a real client's pipeline: the gap is the publisher's to prevent."""
    backend, writer, _ = _writer(Script(RequestOutcome.DONE, RequestOutcome.REFUSED, RequestOutcome.DONE))
    reports: list[tuple[object, int | None]] = []
    for number in range(3):
        writer.append(
            "t", b"%d" % number, b"k", None, lambda error, record: reports.append((error, record.offset()))
        )
    assert writer.flush(0) == 0
    assert [offset for _, offset in reports] == [0, None, 1]
    assert isinstance(writer.explain(reports[1][0]), BrokerUnavailable)
    assert backend.admin.last_stable_offsets("t") == {0: 2}


def test_an_append_whose_answer_is_lost_is_in_the_log() -> None:
    backend, writer, _ = _writer(Script(RequestOutcome.ANSWER_LOST))
    errors: list[object] = []
    writer.append("t", b"v", None, None, lambda error, record: errors.append(error))
    assert writer.poll(0) == 1
    assert isinstance(errors[0], DeadlineExceeded)
    assert backend.admin.last_stable_offsets("t") == {0: 1}


def test_a_delayed_report_comes_in_its_turn_when_the_time_has_come() -> None:
    _, writer, clock = _writer(Script(delays=(2.0, 0.0)))
    values: list[bytes | None] = []

    def note(error: object, record: StoredRecord) -> None:
        values.append(record.value())

    writer.append("t", b"late", None, None, note)
    writer.append("t", b"behind it", None, None, note)
    assert writer.poll(60) == 0, "time stands still, so nothing may wait"
    assert writer.flush(60) == 2
    clock.advance(2)
    assert writer.flush(0) == 0
    assert values == [b"late", b"behind it"]


def test_a_full_queue_refuses_before_it_stores() -> None:
    cluster, _ = cluster_of("t", partitions=1)
    writer = MemoryBackend(cluster=cluster, writer_limit=2).writer(Batching(), 1_000_000)
    for _ in range(2):
        writer.append("t", b"v", None, None, lambda error, record: None)
    with pytest.raises(BufferError):
        writer.append("t", b"v", None, None, lambda error, record: None)
    assert MemoryBackend(cluster=cluster).admin.last_stable_offsets("t") == {0: 2}


def test_a_closed_writer_reports_nothing_and_takes_nothing() -> None:
    _, writer, _ = _writer(FaultPlan())
    reports: list[object] = []
    writer.append("t", b"v", None, None, lambda error, record: reports.append(error))
    writer.close()
    assert (writer.flush(0), reports) == (0, [])
    with pytest.raises(FailedPrecondition):
        writer.append("t", b"v", None, None, lambda error, record: None)


def test_keyless_records_go_round_the_partitions() -> None:
    cluster, _ = cluster_of("t", partitions=3)
    backend = MemoryBackend(cluster=cluster)
    writer = backend.writer(Batching(), 1_000_000)
    for _ in range(7):
        writer.append("t", b"v", None, None, lambda error, record: None)
    assert backend.admin.last_stable_offsets("t") == {0: 3, 1: 2, 2: 2}


def test_a_read_returns_at_most_what_the_plan_allows() -> None:
    plan = Script(limit=1)
    owner = _owner(plan)
    for value in (b"a", b"b"):
        owner.backend.cluster.append("t", 0, value)
    assert [owner.read(), owner.read(), owner.read()] == [[b"a"], [b"b"], []]
    plan.limit = 0
    owner.backend.cluster.append("t", 0, b"c")
    assert owner.read() == []


def test_reads_are_fair_to_all_partitions() -> None:
    cluster, _ = cluster_of("t", partitions=3)
    owner = Process(cluster, "a", "t")
    owner.read()
    owner.read()
    for partition in range(3):
        for _ in range(10):
            cluster.append("t", partition, b"%d" % partition)
    assert [owner.read(4) for _ in range(3)] == [[b"0"] * 4, [b"1"] * 4, [b"2"] * 4]


def test_a_broken_connection_is_reported_at_each_read() -> None:
    plan = Script()
    owner = _owner(plan)
    plan.broken = BrokerUnavailable("injected")
    owner.read()
    assert owner.failures == [(None, plan.broken, False)]


def test_requests_of_admin_catalog_and_reader_fail_as_planned_and_do_nothing() -> None:
    plan = Script()
    owner = _owner(plan)
    plan.errors = {
        name: BrokerUnavailable(f"injected: {name}") for name in ("delete_topic", "topics", "committed")
    }
    with pytest.raises(BrokerUnavailable, match="delete_topic"):
        owner.backend.admin.delete_topic("t")
    with pytest.raises(BrokerUnavailable, match="topics"):
        owner.backend.catalog.topics()
    with pytest.raises(BrokerUnavailable, match="committed"):
        owner.reader.committed([AT])
    assert owner.backend.admin.topic("t").partitions == 1


def test_retention_under_the_position_is_reported_once_and_a_seek_goes_on() -> None:
    owner = _owner(FaultPlan())
    for number in range(5):
        owner.backend.cluster.append("t", 0, b"%d" % number)
    owner.backend.cluster.truncate("t", 0, 3)
    assert [owner.read(), owner.read()] == [[], []]
    assert [(partition, fatal) for partition, _, fatal in owner.failures] == [(AT, True)]
    owner.reader.seek(AT, 3)
    assert owner.read() == [b"3", b"4"]


def test_a_committed_reader_waits_for_the_marker() -> None:
    owner = _owner(FaultPlan())
    cluster = owner.backend.cluster
    cluster.append("t", 0, b"inside", transaction="x")
    cluster.append("t", 0, b"behind")
    assert owner.read() == []
    assert owner.backend.admin.last_stable_offsets("t") == {0: 0}
    assert owner.reader.log_range(AT) == (0, 2)
    cluster.finish_transaction("t", 0, "x", committed=True)
    assert owner.read() == [b"inside", b"behind"]


def test_holes_and_compaction_are_read_over() -> None:
    owner = _owner(FaultPlan())
    cluster = owner.backend.cluster
    for value in (b"a", b"b"):
        cluster.append("t", 0, value)
    cluster.skip_offsets("t", 0, 3)
    cluster.append("t", 0, b"c")
    cluster.compact("t", 0, [1])
    assert owner.read() == [b"a", b"c"]
    cluster.append("t", 0, b"d")
    assert owner.read() == [b"d"]


def test_time_stands_still_until_it_is_moved() -> None:
    clock = VirtualClock(10)
    clock.advance(2.5)
    assert clock.now() == 12.5
    with pytest.raises(ValueError):
        clock.advance(-1)


def test_a_cluster_has_one_clock() -> None:
    cluster, _ = cluster_of()
    with pytest.raises(ValueError):
        MemoryBackend(VirtualClock(), cluster=cluster)


def test_a_closed_reader_refuses_everything() -> None:
    owner = _owner(FaultPlan())
    owner.reader.close()
    with pytest.raises(FailedPrecondition):
        owner.reader.read(1, 0)
    with pytest.raises(FailedPrecondition):
        commit(owner.reader, {AT: Committed(1, "")})


def test_reading_before_subscribing_is_refused() -> None:
    with pytest.raises(FailedPrecondition):
        MemoryBackend().reader("g", "a").read(1, 0)


def test_seeking_what_is_not_assigned_is_refused() -> None:
    owner = _owner(FaultPlan())
    with pytest.raises(FailedPrecondition):
        owner.reader.seek(TopicPartition("t", 5), 0)
