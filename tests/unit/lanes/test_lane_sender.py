"""The order in which a publisher's messages come into the lanes of a topic, and what waits for what."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

import pytest

from kafka_pubsub import PublishFlow, PubSub
from kafka_pubsub.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    OrderingKeyPaused,
    PublishError,
    ResourceExhausted,
)
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.lanes import lane_sender
from kafka_pubsub.lanes.headers import Name
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome
from kafka_pubsub.log.partitioner import key_into
from kafka_pubsub.model import StoredRecord
from kafka_pubsub.topic import Topic
from tests.support import until
from tests.unit.publish.held_writers import HeldBackend, after_of, number_of, other_of

PATIENCE = 30.0
P4, T4, P7 = Lane(4, True), Lane(4, False), Lane(7, True)


class Refuse(FaultPlan):
    """The broker refuses bodies that begin with `bad`."""

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        refused = value is not None and value.startswith(b"bad")
        return RequestOutcome.REFUSED if refused else RequestOutcome.DONE


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend(faults=Refuse())


@pytest.fixture
def ps(backend: HeldBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as opened:
        yield opened
        backend.release()


@pytest.fixture
def jobs(ps: PubSub, backend: HeldBackend) -> Topic:
    """A single partition; the lanes p4 (the topic itself), t4, p7 and t7 are there."""
    topic = ps.create_topic("jobs", partitions=1, priorities=10, transient=True)
    for priority in (4, 7):
        for durable in (True, False):
            topic.publish(b"first", priority=priority, durable=durable).result(PATIENCE)
    return topic


def test_messages_of_one_lane_do_not_wait_for_each_other(jobs: Topic, backend: HeldBackend) -> None:
    backend.hold("jobs", "jobs.lane.t7")
    for number in range(5):
        jobs.publish(b"%d" % number, ordering_key="k")
        jobs.publish(b"%d" % number, priority=7, durable=False)
    assert backend.values("jobs")[1:] == backend.values("jobs.lane.t7")[1:] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_change_of_class_waits_until_the_other_class_is_stored_and_the_caller_does_not(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs")
    first = jobs.publish(b"durable")
    second = jobs.publish(b"transient", durable=False)
    third = jobs.publish(b"durable again")
    assert not any(each.done() for each in (first, second, third))
    assert (backend.values("jobs")[1:], backend.values("jobs.lane.t4")[1:]) == ([b"durable"], [])
    backend.release()
    assert [each.result(PATIENCE) for each in (first, second, third)] == [
        "jobs:0:1",
        "jobs.lane.t4:0:1",
        "jobs:0:2",
    ]


def test_other_priorities_and_partitions_do_not_wait(ps: PubSub, backend: HeldBackend) -> None:
    jobs = ps.create_topic("jobs", partitions=2, priorities=10, transient=True)
    here, there = (key_into(number, 2).decode() for number in range(2))
    for lane in ({}, {"durable": False}, {"priority": 9, "durable": False}):
        jobs.publish(b"first", **lane).result(PATIENCE)
    backend.hold("jobs")
    jobs.publish(b"durable", ordering_key=here)
    assert (
        jobs.publish(b"x", ordering_key=there, durable=False).result(PATIENCE).startswith("jobs.lane.t4:1:")
    )
    assert jobs.publish(b"x", priority=9, durable=False).result(PATIENCE).startswith("jobs.lane.t9:")
    assert not jobs.publish(b"x", ordering_key=here, durable=False).done()


def test_a_transient_message_without_an_answer_holds_a_durable_one_for_a_second(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs.lane.t4")
    lost = jobs.publish(b"transient", durable=False)
    assert jobs.publish(b"durable").result(PATIENCE) == "jobs:0:1"
    with pytest.raises(PublishError, match=r"no broker answered within 1 s.*given up.*durable=True"):
        lost.result(0)
    assert jobs.given_up == 1
    backend.release()
    jobs.flush(PATIENCE)
    # The answer that comes later changes nothing.
    assert isinstance(lost.exception(0), PublishError)
    assert jobs.given_up == 1


def test_a_key_that_changes_its_lane_waits_for_its_last_message_and_names_it(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs")
    first = jobs.publish(b"1", ordering_key="k")
    second = jobs.publish(b"2", ordering_key="k", priority=7)
    third = jobs.publish(b"3", ordering_key="k", priority=7)
    other = jobs.publish(b"other", ordering_key="other", priority=7)
    fourth = jobs.publish(b"4", ordering_key="k")
    assert backend.values("jobs.lane.p7") == [b"first"]
    assert not other.done()  # a priority's messages keep their order
    backend.release()
    assert [each.result(PATIENCE) for each in (first, second, third, fourth)] == [
        "jobs:0:1",
        "jobs.lane.p7:0:1",
        "jobs.lane.p7:0:2",
        "jobs:0:2",
    ]
    plain, high = backend.stored("jobs")[1:], backend.stored("jobs.lane.p7")[1:]
    assert [after_of(each) for each in plain] == [{}, {P7: 2}]
    assert [after_of(each) for each in high] == [{P4: 1}, {P4: 1}, {}], (
        "each message names what may be unfinished"
    )


def test_a_key_that_stays_in_its_lane_names_nothing(jobs: Topic, backend: HeldBackend) -> None:
    for number in range(3):
        jobs.publish(b"%d" % number, ordering_key="k", priority=7).result(PATIENCE)
        jobs.publish(b"%d" % number, ordering_key="l").result(PATIENCE)
    records = backend.stored("jobs") + backend.stored("jobs.lane.p7")
    assert [after_of(each) for each in records] == [{}] * 8


def test_behind_a_message_that_was_given_up_the_last_stored_one_is_named(
    jobs: Topic, backend: HeldBackend
) -> None:
    jobs.publish(b"1", ordering_key="k", priority=7).result(PATIENCE)
    backend.hold("jobs.lane.t4")
    jobs.publish(b"lost", ordering_key="k", durable=False)
    jobs.publish(b"2", ordering_key="k").result(PATIENCE)
    assert after_of(backend.stored("jobs")[-1]) == {P7: 1}


def test_the_last_stored_message_is_named_though_a_later_one_of_its_lane_was_given_up(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs.lane.t4")
    jobs.publish(b"answered late", ordering_key="k", durable=False)
    stored = jobs.publish(b"lost", ordering_key="k", durable=False)
    backend.report_one()
    jobs.publish(b"after", ordering_key="k").result(PATIENCE)
    assert stored.exception(PATIENCE)
    last = backend.stored("jobs")[-1]
    assert after_of(last) == {T4: 1}
    assert other_of(last) == Name(number_of(last) - 2, 1, backend.admin.topic("jobs.lane.t4").topic_id)


def test_a_key_in_three_lanes_names_its_last_message_in_each_other_one(
    jobs: Topic, backend: HeldBackend
) -> None:
    for lane in ({"priority": 7}, {"durable": False}, {}, {"priority": 7, "durable": False}):
        jobs.publish(b"x", ordering_key="k", **lane).result(PATIENCE)
    assert after_of(backend.stored("jobs.lane.t7")[-1]) == {P7: 1, T4: 1, P4: 1}


def test_keys_that_were_not_used_lately_are_forgotten_but_for_those_without_an_answer(
    ps: PubSub, backend: HeldBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_sender, "KEYS", 10)
    jobs = ps.create_topic("jobs", partitions=1, priorities=2)
    jobs.publish(b"first", priority=1).result(PATIENCE)
    jobs.publish(b"1", ordering_key="stored").result(PATIENCE)
    backend.hold("jobs")
    jobs.publish(b"1", ordering_key="open")
    for number in range(100):
        jobs.publish(b"x", ordering_key=f"k{number}", priority=1).result(PATIENCE)
    assert jobs.publish(b"2", ordering_key="stored", priority=1).result(PATIENCE)
    waits = jobs.publish(b"2", ordering_key="open", priority=1)
    assert not waits.done()
    backend.release()
    waits.result(PATIENCE)
    assert [after_of(each) for each in backend.stored("jobs.lane.p1")[-2:]] == [{}, {Lane(0, True): 1}]


def test_a_failed_durable_message_pauses_its_key_in_every_lane(jobs: Topic, backend: HeldBackend) -> None:
    assert jobs.publish(b"bad", ordering_key="k").exception(PATIENCE)
    for lane in ({}, {"priority": 7}, {"durable": False}):
        refused = jobs.publish(b"x", ordering_key="k", **lane)
        assert isinstance(refused.exception(PATIENCE), OrderingKeyPaused)
    assert jobs.publish(b"x", ordering_key="other", priority=7).result(PATIENCE)
    jobs.resume("k")
    assert jobs.publish(b"x", ordering_key="k", priority=7).result(PATIENCE)


def test_a_message_that_waited_fails_if_its_key_was_paused_meanwhile(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs")
    bad = jobs.publish(b"bad", ordering_key="k")
    waits = jobs.publish(b"x", ordering_key="k", priority=7)
    backend.release()
    assert bad.exception(PATIENCE)
    assert isinstance(waits.exception(PATIENCE), OrderingKeyPaused)
    assert backend.values("jobs.lane.p7") == [b"first"]


def test_a_failed_transient_message_pauses_nothing(jobs: Topic, backend: HeldBackend) -> None:
    assert jobs.publish(b"bad", ordering_key="k", durable=False).exception(PATIENCE)
    assert jobs.publish(b"x", ordering_key="k", durable=False).result(PATIENCE)
    assert jobs.publish(b"x", ordering_key="k").result(PATIENCE)
    assert jobs.given_up == 1


@pytest.mark.parametrize("seed", range(8))
def test_messages_of_two_lanes_that_meet_are_never_on_their_way_together(
    ps: PubSub, backend: HeldBackend, seed: int
) -> None:
    """Two lanes meet in a priority and partition, and in a key; classes, keys and held topics at random."""
    chance = random.Random(seed)
    jobs = ps.create_topic("jobs", partitions=2, priorities=3, transient=True)
    lanes = [(priority, durable) for priority in range(3) for durable in (True, False)]
    for priority, durable in lanes:
        jobs.publish(b"first", priority=priority, durable=durable).result(PATIENCE)
    backend.events.clear()
    for number in range(300):
        if chance.random() < 0.1:
            backend.hold("jobs" if chance.random() < 0.5 else "jobs.lane.p2")
        elif chance.random() < 0.2:
            backend.release()
        priority, durable = chance.choice(lanes)
        key = chance.choice([None, None, "a", "b", "c", "d"])
        jobs.publish(b"%d" % number, ordering_key=key, priority=priority, durable=durable)
    backend.release()
    jobs.flush(PATIENCE)
    assert [what for what, _ in backend.events].count("reported") == 300
    judge(backend.events)


def judge(events: Sequence[tuple[str, StoredRecord]]) -> None:
    """Fails if a message was sent before a message was reported for which it should have waited."""
    # Line or key -> the topics of its unanswered messages by number; and its last number.
    unanswered: dict[Hashable, dict[int, str]] = defaultdict(dict)
    last: dict[Hashable, int] = defaultdict(int)
    for what, record in events:
        topic, number = record.topic() or "", number_of(record)
        priority = "jobs.lane.p1" if topic == "jobs" else topic.replace("lane.t", "lane.p")
        groups: list[Hashable] = [(priority, record.partition())]
        groups += [] if record.key() is None else [record.key()]
        for group in groups:
            if what == "reported":
                del unanswered[group][number]
                continue
            assert number > last[group], "overtaken"
            assert set(unanswered[group].values()) <= {topic}, "another lane's message is on its way"
            last[group] = number
            unanswered[group][number] = topic


def test_what_a_message_comes_after_is_the_last_one_of_its_key_in_each_other_lane(
    ps: PubSub, backend: HeldBackend
) -> None:
    chance = random.Random(1)
    jobs = ps.create_topic("jobs", partitions=2, priorities=3)
    for number in range(200):
        jobs.publish(b"%d" % number, ordering_key=chance.choice("abcdef"), priority=chance.randrange(3))
    jobs.flush(PATIENCE)
    lanes = {Lane(int(topic[-1]) if topic != "jobs" else 1, True): topic for topic in jobs.lanes}
    found = {
        (lane, record.partition(), record.offset()): record
        for lane, topic in lanes.items()
        for record in backend.stored(topic)
    }
    last: dict[bytes | None, dict[Lane, StoredRecord]] = defaultdict(dict)
    for (lane, partition, _), record in sorted(found.items(), key=lambda each: number_of(each[1])):
        named = {each: found[each, partition, offset] for each, offset in after_of(record).items()}
        assert named == {each: other for each, other in last[record.key()].items() if each != lane}
        last[record.key()][lane] = record
    assert {record.partition() for record in found.values()} == {0, 1}


# -- limits, flush and close -----------------------------------------------------------------------------------


def test_the_queue_takes_what_the_flow_allows(jobs: Topic, backend: HeldBackend) -> None:
    jobs.configure(flow=PublishFlow(max_messages=3, on_limit="error"))
    backend.hold("jobs")
    jobs.publish(b"durable")
    for _ in range(3):
        jobs.publish(b"transient", durable=False)
    with pytest.raises(ResourceExhausted, match=r"3 messages.*wait for earlier ones in other lanes"):
        jobs.publish(b"transient", durable=False)
    assert jobs.publish(b"x", priority=7).result(PATIENCE)
    jobs.configure(flow=PublishFlow(max_messages=3, on_limit="ignore"))
    last = jobs.publish(b"transient", durable=False)
    backend.release()
    assert last.result(PATIENCE) == "jobs.lane.t4:0:4"


def test_a_full_queue_blocks_its_caller_until_there_is_room(jobs: Topic, backend: HeldBackend) -> None:
    jobs.configure(flow=PublishFlow(max_messages=1))
    backend.hold("jobs")
    jobs.publish(b"durable")
    jobs.publish(b"1", durable=False)
    blocked = threading.Thread(target=jobs.publish, args=(b"2",), kwargs={"durable": False})
    blocked.start()
    assert jobs.publish(b"others go on", priority=7).result(PATIENCE)
    assert blocked.is_alive()
    backend.release()
    blocked.join(PATIENCE)
    assert not blocked.is_alive()
    jobs.flush(PATIENCE)
    assert backend.values("jobs.lane.t4")[1:] == [b"1", b"2"]


def test_a_full_transient_lane_blocks_its_own_caller_only(jobs: Topic, backend: HeldBackend) -> None:
    jobs.configure(flow=PublishFlow(max_messages=2))
    backend.hold("jobs.lane.t7")
    for _ in range(2):
        jobs.publish(b"x", priority=7, durable=False)
    blocked = threading.Thread(target=jobs.publish, args=(b"x",), kwargs={"priority": 7, "durable": False})
    blocked.start()
    for _ in range(5):
        assert jobs.publish(b"durable").result(PATIENCE)
    assert blocked.is_alive()
    backend.release()
    blocked.join(PATIENCE)
    assert not blocked.is_alive()


def test_flush_waits_for_what_waits_and_says_so(jobs: Topic, backend: HeldBackend) -> None:
    backend.hold("jobs")
    jobs.publish(b"durable")
    waits = jobs.publish(b"transient", durable=False)
    with pytest.raises(DeadlineExceeded, match=r"flush: 1 messages? of topic 'jobs'"):
        jobs.flush(0.05)
    backend.release()
    jobs.flush(PATIENCE)
    assert waits.done()


def test_what_still_waits_at_the_close_fails(backend: HeldBackend, jobs: Topic, ps: PubSub) -> None:
    backend.hold("jobs")
    jobs.publish(b"durable")
    waits = jobs.publish(b"transient", durable=False)
    ps._cluster.publishers["jobs"].close(0.1)
    with pytest.raises(FailedPrecondition, match="closed"):
        waits.result(0)
    with pytest.raises(FailedPrecondition, match="closed"):
        jobs.publish(b"x", priority=7)


def test_a_message_that_is_too_large_is_refused_by_the_call_though_it_would_have_to_wait(
    jobs: Topic, backend: HeldBackend
) -> None:
    backend.hold("jobs")
    jobs.publish(b"durable")
    with pytest.raises(InvalidArgument, match=r"exceeds the limit of topic 'jobs\.lane\.t4'"):
        jobs.publish(b"x" * 1_048_500, durable=False)


# -- topics that get lanes -------------------------------------------------------------------------------------


def test_lanes_come_after_what_was_published_before_there_were_any(ps: PubSub, backend: HeldBackend) -> None:
    jobs = ps.create_topic("jobs", partitions=1)
    jobs.publish(b"first").result(PATIENCE)
    backend.hold("jobs")
    before = [jobs.publish(b"%d" % number) for number in range(3)]
    ps.update_topic("jobs", priorities=3, transient=True)
    after: list[str] = []
    publishing = threading.Thread(target=lambda: after.append(jobs.publish(b"x", durable=False).result()))
    publishing.start()
    until(lambda: publishing.is_alive() and backend.catalog.topics()["jobs"].options.transient)
    assert "jobs.lane.t1" not in backend.admin.topic_names()
    backend.release()
    publishing.join(PATIENCE)
    assert [each.result(0) for each in before] == ["jobs:0:1", "jobs:0:2", "jobs:0:3"]
    assert after == ["jobs.lane.t1:0:0"]
    assert number_of(backend.stored("jobs")[-1]) == 0
    jobs.publish(b"y").result(PATIENCE)
    assert number_of(backend.stored("jobs")[-1]) > 0
