"""Delayed messages in memory: from `publish` through the tiers home, and routers in trouble."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from kafka_pubsub import InvalidArgument, Message, OrderingKeyPaused, PublishError, PubSub
from kafka_pubsub.config import Batching
from kafka_pubsub.delays import role as delay_router
from kafka_pubsub.delays.declaration import DelayDeclaration
from kafka_pubsub.delays.layout import DEAD, GROUP, INGEST, DelayLayout, tier_topic
from kafka_pubsub.delays.records import DELAY_HEADER, DelayRequest, encode_request
from kafka_pubsub.delays.role import DelayRole
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend, RequestOutcome, Step
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, StoredRecord, TopicPartition
from kafka_pubsub.services import engine
from kafka_pubsub.services.lifecycle import ServiceState
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Beginning
from tests.support import until

TIERS = 5


def has_brought_home(router: DelayRouter) -> bool:
    return bool(router.metrics().get("home"))


def stored(backend: Backend, topic: str) -> list[StoredRecord]:
    """The records that a reader of committed records finds in a topic."""
    info = backend.admin.topic(topic)
    found: list[StoredRecord] = []
    for number in range(info.partitions):
        place = TopicPartition(topic, number)
        start, end = backend.admin.log_range(place)
        fetch = backend.record_fetch()
        found += fetch.fetch(place, range(start, end), 10**9, 1.0).records
        fetch.close()
    return found


def bodies(backend: Backend, topic: str = "orders") -> list[bytes | None]:
    return [record.value() for record in stored(backend, topic)]


def ids_of(backend: Backend, topic: str) -> list[str]:
    """The ids of the messages that routers wrote; empty for others."""
    return [(dict(record.headers() or ()).get("ps-id") or b"").decode() for record in stored(backend, topic)]


def test_messages_come_home_when_they_are_due_with_their_ids(ps: PubSub) -> None:
    topic = ps.create_topic("orders", partitions=3)
    sub = ps.create_subscription("billing", "orders", message_ordering=True)
    came: dict[str, tuple[float, Message]] = {}

    def handle(message: Message) -> None:
        came[message.message_id] = time.monotonic(), message
        message.ack()

    with DelayRouter(ps, tiers=TIERS), sub.pull(handle):
        began = time.monotonic()
        ids = {
            topic.publish(b"%d" % n, ordering_key="k", attributes={"n": str(n)}, delay=delay).result(
                10
            ): delay
            for n, delay in enumerate((1.3, 0.0, 0.4, 2.0, 0.001))
        }
        until(lambda: len(came) == len(ids))
    assert set(came) == set(ids)
    for message_id, delay in ids.items():
        at, message = came[message_id]
        assert at - began >= delay, "early"
        assert message.ordering_key == "k"
        assert message.attributes == {"n": message.data.decode()}
    assert sum(each.startswith("orders:") for each in ids) == 1, (
        "only the message without a delay goes straight home"
    )


def test_the_order_of_a_key_is_that_of_due_times_then_of_publishing(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders", partitions=2)
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    for n in (3, 4, 5):
        topic.publish(b"%d" % n, ordering_key="k", deliver_at=due)
    topic.publish(b"2", ordering_key="k", deliver_at=due - timedelta(milliseconds=500))
    topic.publish(b"6", ordering_key="k", deliver_at=due + timedelta(milliseconds=1))
    topic.publish(b"1", ordering_key="k", deliver_at=due - timedelta(milliseconds=501)).result(10)
    with DelayRouter(ps):
        until(lambda: len(bodies(backend)) == 6)
    assert bodies(backend) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_message_hops_by_the_binary_digits_of_its_delay(ps: PubSub) -> None:
    topic = ps.create_topic("orders")
    with DelayRouter(ps, tiers=TIERS) as router:
        topic.publish(b"x", delay=3.1).result(10)
        until(lambda: router.metrics().get("home") == 1)
        assert router.metrics()["hops"] == 2


def test_a_home_topic_that_is_gone_sends_its_messages_to_the_dead_letters(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders")
    idle = DelayRouter(ps, tiers=TIERS)
    published = topic.publish(b"x", ordering_key="k", attributes={"a": "b"}, delay=1).result(10)
    ps.delete_topic("orders")
    with idle as router:
        until(lambda: bodies(backend, DEAD) == [b"x"])
        (dead_letter,) = stored(backend, DEAD)
        said = dict(dead_letter.headers() or ())
        assert said["ps-delay-dead"] == b"home topic 'orders' doesn't exist any more"
        assert said["ps-id"] == published.encode()
        assert said["a"] == b"b"
        assert dead_letter.key() == b"orders\0k"
    assert router.metrics()["dead"] == 1


def test_records_that_are_not_ours_go_to_the_dead_letters_and_hold_up_nothing(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("orders")
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        router.wait_until_running()
        writer = backend.writer(Batching(), 10**6)
        for name in (INGEST, tier_topic(0), tier_topic(3)):
            writer.append(
                name, b"foreign", None, [("who", b"me"), (DELAY_HEADER, b"rubbish")], lambda *_: None
            )
        far = encode_request(DelayRequest("orders", None, 10**12))
        writer.append(INGEST, b"far", b"orders\0k", [(DELAY_HEADER, far)], lambda *_: None)
        topic.publish(b"ours", delay=0.2).result(10)
        until(lambda: bodies(backend) == [b"ours"])
        until(lambda: sorted(map(str, bodies(backend, DEAD))) == ["b'far'", *["b'foreign'"] * 3])
        reasons = {dict(each.headers() or ())["ps-delay-dead"] for each in stored(backend, DEAD)}
        assert reasons == {
            b"its header ps-delay can't be read",
            b"its delay is longer than the tiers of this cluster can hold",
        }
        writer.close()


@pytest.mark.parametrize(
    "delay", [0.1, 1.3, 10**12], ids=["from memory", "from a tier", "to the dead letters"]
)
def test_an_id_that_the_writer_gave_stays_the_only_one(
    ps: PubSub, backend: MemoryBackend, delay: float
) -> None:
    ps.create_topic("orders")
    request = encode_request(DelayRequest("orders", None, round(delay * 1000)))
    with DelayRouter(ps, tiers=TIERS) as router:
        router.wait_until_running()
        writer = backend.writer(Batching(), 10**6)
        writer.append(
            INGEST, b"x", b"orders\0k", [(DELAY_HEADER, request), ("ps-id", b"q:1:r")], lambda *_: None
        )
        target = DEAD if delay > 2 else "orders"
        until(lambda: bodies(backend, target) == [b"x"])
        writer.close()
    (record,) = stored(backend, target)
    assert [value for name, value in record.headers() or () if name == "ps-id"] == [b"q:1:r"]


def test_another_router_takes_over_and_nothing_is_lost_or_doubled(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders")
    wanted = {b"%d" % n for n in range(60)}
    with DelayRouter(ps, tiers=TIERS) as first:
        first.wait_until_running()
        for n in range(60):
            topic.publish(b"%d" % n, ordering_key=f"k{n % 7}", delay=n / 20)
        topic.flush(10)
        until(lambda: len(bodies(backend)) >= 10)
    assert first.health().state is ServiceState.STOPPED
    with DelayRouter(ps), DelayRouter(ps):
        until(lambda: len(bodies(backend)) >= 60)
    found = bodies(backend)
    assert len(found) == 60
    assert set(found) == wanted


def test_what_is_handled_is_deleted(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ps.create_topic("orders")
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        topic.publish(b"x", delay=1.2).result(10)
        until(lambda: router.metrics().get("home") == 1)
    assert bodies(backend, tier_topic(0)) == []
    start, end = backend.admin.log_range(TopicPartition(INGEST, 0))
    assert 0 < start <= end


def test_a_layout_is_made_once_and_contradictions_are_refused(ps: PubSub) -> None:
    with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
        router.wait_until_running()
        assert router.health().partitions == 2
    wrongs: list[tuple[Callable[[], DelayRouter], str]] = [
        (lambda: DelayRouter(ps, partitions=3), "partitions: the tiers of this cluster have 2, not 3"),
        (lambda: DelayRouter(ps, tiers=4), "tiers: this cluster has 5, in which messages may wait, not 4"),
    ]
    for wrong, said in wrongs:
        with wrong() as router, pytest.raises(FailedPrecondition, match=said):
            router.wait_until_running(timeout=0.2)
    with pytest.raises(InvalidArgument, match="tiers: must be 1 to 28, not 29"):
        DelayRouter(ps, tiers=29)


def test_a_publisher_that_comes_first_makes_the_tiers_that_the_router_of_its_program_wants(
    ps: PubSub,
) -> None:
    router = DelayRouter(ps, tiers=TIERS, partitions=3)
    ps.create_topic("orders").publish(b"x", delay=20).result(10)
    assert ps._cluster.delay_topics.find() == DelayLayout(TIERS, 3)
    with router:
        router.wait_until_running()


def test_a_tier_that_is_missing_among_others_is_named(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders")
    ps._cluster.delay_topics.make(5, 1)
    backend.admin.delete_topic(tier_topic(2))
    with pytest.raises(FailedPrecondition, match=r"delay\.02' is missing"):
        ps._cluster.delay_topics.find()
    with pytest.raises(FailedPrecondition, match=r"delay\.02' is missing"):
        topic.publish(b"x", delay=3).result(10)
    with DelayRouter(ps) as router:
        until(lambda: "delay.02' is missing" in router.health().error)
        ps._cluster.topology.apply(DelayDeclaration(tiers=5, partitions=1))
        until(lambda: router.health().ok)
        topic.publish(b"x", delay=1.1).result(10)
        until(lambda: bodies(backend) == [b"x"])


@pytest.mark.parametrize(
    ("setting", "value"), [("retention.ms", "1000"), ("retention.bytes", "5"), ("cleanup.policy", "compact")]
)
def test_a_tier_that_would_lose_messages_is_refused(
    ps: PubSub, backend: MemoryBackend, setting: str, value: str
) -> None:
    with DelayRouter(ps, tiers=TIERS) as router:
        router.wait_until_running()
    backend.admin.update_topic(tier_topic(2), {setting: value})
    with (
        DelayRouter(ps) as router,
        pytest.raises(FailedPrecondition, match=f"delay.02' has {setting}={value}"),
    ):
        router.wait_until_running(timeout=0.2)


@pytest.mark.parametrize(
    ("publish", "said"),
    [
        (lambda topic: topic.publish(b"x", delay=32), "delay: 0:00:32 is longer than the 0:00:31"),
        (lambda topic: topic.publish("x", delay=1), "data must be bytes"),
        (lambda topic: topic.publish(b"x", delay=1, ordering_key=""), "Ordering key cannot be empty"),
        (lambda topic: topic.publish(b"x", delay=1, attributes={"ps-id": "1"}), "begins with 'ps-'"),
        (lambda topic: topic.publish(bytes(2 * 1024 * 1024), delay=1), "exceeds the limit of topic 'orders'"),
    ],
)
def test_what_home_would_refuse_is_refused_at_once(
    ps: PubSub, publish: Callable[..., object], said: str
) -> None:
    topic = ps.create_topic("orders")
    with DelayRouter(ps, tiers=TIERS) as router:
        router.wait_until_running()
        with pytest.raises(InvalidArgument, match=said):
            publish(topic)


def test_keys_are_refused_where_home_takes_none(ps: PubSub) -> None:
    topic = ps.create_topic("orders", message_ordering=False)
    with pytest.raises(InvalidArgument, match="Message ordering must be enabled"):
        topic.publish(b"x", delay=1, ordering_key="k")


def test_publishing_makes_the_topics_only_where_it_may(backend: MemoryBackend) -> None:
    with PubSub.in_memory(backend, create=False, services=False) as ps:
        backend.admin.create_topic("orders", 1, None, {})
        with pytest.raises(FailedPrecondition, match="create=False"):
            ps.adopt_topic("orders").publish(b"x", delay=1)


def test_messages_wait_for_a_router_that_comes_later(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders")
    assert topic.publish(b"x", delay=0.1).result(10) == f"{INGEST}:0:0"
    with DelayRouter(ps):
        until(lambda: bodies(backend) == [b"x"])


def test_overdue_messages_come_in_order_at_a_bounded_rate(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders", partitions=1)
    for n in range(30):
        topic.publish(b"%02d" % n, ordering_key="k", delay=0.01)
    topic.flush(10)
    began = time.monotonic()
    with DelayRouter(ps, max_rate=20):
        until(lambda: len(bodies(backend)) == 30)
    assert time.monotonic() - began > 1.2
    assert bodies(backend) == [b"%02d" % n for n in range(30)]


def test_the_pace_saves_little_up() -> None:
    now = [0.0]
    pace = delay_router.Pace(100.0, lambda: now[0])
    assert pace.room() == 10
    pace.spend(50)
    now[0] += 0.25
    assert pace.room() == 0
    now[0] += 0.25
    assert pace.room() == 10
    now[0] += 1000
    assert pace.room() == 10


def test_a_router_that_left_in_order_is_not_fenced(ps: PubSub, caplog: pytest.LogCaptureFixture) -> None:
    topic = ps.create_topic("orders")
    for _ in range(2):
        with DelayRouter(ps) as router:
            topic.publish(b"x", delay=0.01).result(10)
            until(partial(has_brought_home, router))
    assert "killed" not in caplog.text


class RefusedOnce(FaultPlan):
    """The log refuses the first delayed message of a key."""

    def __init__(self) -> None:
        self.refused = False

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        if topic == INGEST and value == b"first" and not self.refused:
            self.refused = True
            return RequestOutcome.REFUSED
        return RequestOutcome.DONE


def test_after_a_failed_message_its_key_is_paused_until_it_is_resumed() -> None:
    with PubSub.in_memory(MemoryBackend(faults=RefusedOnce()), services=False) as ps:
        topic = ps.create_topic("orders")
        with pytest.raises(PublishError):
            topic.publish(b"first", ordering_key="k", delay=1).result(10)
        with pytest.raises(OrderingKeyPaused, match="'k' is paused for delayed messages of topic 'orders'"):
            topic.publish(b"second", ordering_key="k", delay=1).result(10)
        topic.publish(b"other", ordering_key="l", delay=1).result(10)
        topic.publish(b"now", ordering_key="k").result(10)
        topic.resume("k")
        assert topic.publish(b"first", ordering_key="k", delay=1).result(10)


class FailingTransactions(FaultPlan):
    """Every fourth commit of a transaction is refused; with `unanswered` another is done without an answer."""

    def __init__(self, *, unanswered: bool = False) -> None:
        self.commits = 0
        self._unanswered = unanswered

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if step is not Step.COMMIT:
            return RequestOutcome.DONE
        self.commits += 1
        if self.commits % 4 == 2:
            return RequestOutcome.REFUSED
        lost = self._unanswered and self.commits % 4 == 0
        return RequestOutcome.ANSWER_LOST if lost else RequestOutcome.DONE


def test_only_what_is_stored_is_counted_however_often_it_was_tried() -> None:
    backend = MemoryBackend(faults=FailingTransactions())
    delays = [n / 5 for n in range(1, 15)]
    with PubSub.in_memory(backend, services=False) as ps:
        topic, gone = ps.create_topic("orders", partitions=1), ps.create_topic("gone", partitions=1)
        idle = DelayRouter(ps, tiers=TIERS, partitions=1)
        gone.publish(b"dead", delay=0.7).result(10)
        ps.delete_topic("gone")
        with idle as router:
            for delay in delays:
                topic.publish(b"x", ordering_key="k", delay=delay)
            cancelled = topic.publish(b"cancelled", delay=4).result(10)
            assert topic.cancel(cancelled)
            until(lambda: router.metrics().get("cancelled"))
        counts = router.metrics()
    assert counts["aborted"] > 3
    assert (counts["home"], counts["dead"], counts["cancelled"]) == (len(delays), 1, 1)
    # The request to cancel waits for the rest of the 4 seconds, as counted at its arrival.
    hops = sum(int(delay).bit_count() for delay in delays) + 1
    assert hops <= counts["hops"] <= hops + 2
    assert counts["hops"] + counts["home"] + counts["dead"] == counts["records"]


class LostAnswer(FaultPlan):
    """The answer of the first transaction with a message is lost, though the transaction is stored."""

    def __init__(self) -> None:
        self.wrote = self.lost = False

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        if not transactional_id.startswith(GROUP):
            return RequestOutcome.DONE
        self.wrote = self.wrote or step is Step.WRITE
        if step is not Step.COMMIT or not self.wrote or self.lost:
            return RequestOutcome.DONE
        self.lost = True
        return RequestOutcome.ANSWER_LOST


def test_a_transaction_that_was_stored_without_an_answer_leaves_nothing_wrong() -> None:
    faults = LostAnswer()
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
            topic.publish(b"x", delay=0.05).result(10)
            until(lambda: faults.lost)
            until(lambda: router.health().error != "", "what is wrong")
            until(lambda: router.health().ok, "nothing wrong any more", 20)
        assert bodies(backend) == [b"x"]


@pytest.mark.parametrize("unread", [True, False])
def test_a_name_that_is_stored_says_nothing_of_records_that_come_again(
    ps: PubSub, backend: MemoryBackend, unread: bool
) -> None:
    ps._cluster.topology.apply(DelayDeclaration(tiers=1, partitions=1))
    role = DelayRole(backend, 1, 1, ServiceMetrics())
    end = 7 if unread else 3
    beginnings = [Beginning(Committed(3, ""), 0, end), Beginning(Committed(0, ""), 0, 0)]
    task = role.begin(role.topics, 0, beginnings, "writer")
    named = task.work(100, 100)
    assert named is not None
    assert (named.records, named.waits) == ((), unread)


class RefusedTick(FaultPlan):
    """The log refuses the first tick."""

    def __init__(self) -> None:
        self.ticks = 0

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> RequestOutcome:
        if topic != INGEST or value == b"x":
            return RequestOutcome.DONE
        self.ticks += 1
        return RequestOutcome.REFUSED if self.ticks == 1 else RequestOutcome.DONE


def test_a_tick_that_the_log_refuses_is_not_counted() -> None:
    faults = RefusedTick()
    with PubSub.in_memory(MemoryBackend(faults=faults), services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
            topic.publish(b"x", delay=0.01)
            until(partial(has_brought_home, router))
    assert 0 < router.metrics()["ticks"] < faults.ticks


def test_ticks_are_appended_in_rounds(ps: PubSub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_APPEND", 0.3)
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        began = time.monotonic()
        for number in range(20):
            topic.publish(b"%d" % number, delay=0.005).result(10)
        until(lambda: router.metrics().get("home") == 20)
        rounds = (time.monotonic() - began) / 0.3 + 2
        assert router.metrics()["ticks"] <= rounds


def test_transactions_that_fail_or_are_not_answered_lose_and_double_nothing() -> None:
    faults = FailingTransactions(unanswered=True)
    backend = MemoryBackend(faults=faults)
    with PubSub.in_memory(backend, services=False) as ps:
        topic = ps.create_topic("orders", partitions=1)
        with DelayRouter(ps, tiers=TIERS, partitions=2) as router:
            for n in range(40):
                topic.publish(b"%d" % n, ordering_key=f"k{n % 3}", delay=n / 15)
            topic.flush(10)
            until(lambda: len(bodies(backend)) >= 39)
            until(lambda: router.metrics()["aborted"] > 2)
        with DelayRouter(ps):
            until(lambda: len(bodies(backend)) >= 40)
    assert sorted(map(str, bodies(backend))) == sorted(str(b"%d" % n) for n in range(40))
    assert faults.commits > 8
