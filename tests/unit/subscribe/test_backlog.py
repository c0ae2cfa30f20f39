"""What a subscription hasn't finished, by its state: read from Kafka alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from kafka_pubsub import (
    BrokerUnavailable,
    DeadLetterPolicy,
    InvalidArgument,
    Message,
    NotFound,
    PermissionDenied,
    PubSub,
    PubSubError,
    RetryPolicy,
    Subscription,
    SubscriptionState,
)
from kafka_pubsub.log.memory.admin import MemoryAdmin
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe import backlog
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryInfo, retry_headers
from tests.checkpoints import write
from tests.unit.crashing import another
from tests.unit.dying import PATIENCE, QUICK, Handler, kill, until

HOME, RETRY = TopicPartition("orders", 0), TopicPartition("orders.sub.billing.retry", 0)
IN_AN_HOUR = RetryPolicy(min_backoff=600, max_backoff=600)


def made(ps: PubSub, retry: RetryPolicy = QUICK, on_exhausted: str = "park") -> Subscription:
    ps.create_topic("orders", partitions=1)
    ps.create_topic("dead", partitions=2)
    policy = DeadLetterPolicy.model_validate(
        {"topic": "dead", "max_attempts": 5, "on_exhausted": on_exhausted}
    )
    return ps.create_subscription(
        "billing", "orders", message_ordering=True, retry=retry, dead_letter=policy, ack_deadline=60
    )


@pytest.fixture
def sub(ps: PubSub) -> Subscription:
    return made(ps)


def publish(ps: PubSub, *keys: str | None) -> None:
    for future in ps.topic("orders").publish_many({"data": b"x", "ordering_key": key} for key in keys):
        future.result(PATIENCE)


def elsewhere(cluster: MemoryCluster, limit: int = 10_000) -> SubscriptionState:
    """The state as a process reads it that receives nothing."""
    with another(cluster) as other:
        return other.subscription("billing").state(limit=limit)


def store(cluster: MemoryCluster, place: TopicPartition, position: int, text: str = "") -> None:
    """The group commits."""
    with cluster.change():
        assert cluster.group("billing").store(place, Committed(position, text)) is None


def finished(*runs: Run, named: Named | None = None) -> str:
    """The metadata of a commit at position 0."""
    return ack_map.encode(AckMap(7, runs, checkpoint=named, more=named is not None), 0)


def wait(cluster: MemoryCluster, topic_id: str, origins: Iterable[int], due: int = 0) -> None:
    """Messages wait in the retry topic, each of its own key."""
    for origin in origins:
        headers = retry_headers(None, RetryInfo(topic_id, 0, origin, due=due))
        cluster.append(RETRY.topic, 0, b"", b"k%d" % origin, headers)


@pytest.fixture
def topic_id(sub: Subscription, backend: MemoryBackend) -> str:
    return backend.catalog.subscriptions()["billing"].topic_id


# -- what streams leave ------------------------------------------------------------------------------------------


def test_a_parked_message_is_all_that_is_left_of_a_thousand_and_one(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, "bad", *(f"k{number}" for number in range(1000)))
    handler = Handler(lambda message: message.ordering_key == "bad")
    with sub.pull(handler):
        handler.wait_for(1000)
        until(lambda: (sub.state().parked, sub.state().backlog) == (1, 1))
        assert sub.state().blocked_keys == 1
    state = elsewhere(cluster)
    assert (state.backlog, state.parked, state.waiting_retry, state.blocked_keys) == (1, 1, 0, 1)
    assert (state.members, state.dead_letters, state.unread_retry) == (0, 0, 0)


def test_a_message_behind_a_parked_one_is_counted_and_those_acked_behind_it_are_not(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, "bad")
    handler = Handler(lambda message: message.ordering_key == "bad")
    with sub.pull(handler):
        until(lambda: sub.state().parked == 1)
        publish(ps, "bad", *(f"k{number}" for number in range(1000)))
        handler.wait_for(1000)
        until(lambda: sub.state().backlog == 2)
        state = sub.state()
        assert (state.lag, state.parked, state.blocked_keys) == (1001, 1, 1)
    assert elsewhere(cluster).backlog == 2


def test_nacked_messages_are_in_the_backlog_and_wait_for_retry(ps: PubSub, cluster: MemoryCluster) -> None:
    sub = made(ps, IN_AN_HOUR)
    before = datetime.now(UTC)
    publish(ps, *(f"k{number}" for number in range(100)))
    with sub.pull(Message.nack):
        until(lambda: sub.state().waiting_retry == 100)
    state = elsewhere(cluster)
    assert (state.lag, state.backlog, state.waiting_retry, state.parked) == (0, 100, 100, 0)
    assert state.blocked_keys == 100
    assert state.oldest is not None
    assert abs(state.oldest - before) < timedelta(seconds=PATIENCE)


def test_acks_behind_a_message_that_is_held_are_no_backlog(ps: PubSub, sub: Subscription) -> None:
    held: list[Message] = []

    def hold_the_first(message: Message) -> None:
        held.append(message) if message.ordering_key == "slow" else message.ack()

    with sub.pull(hold_the_first):
        publish(ps, "slow", *(f"k{number}" for number in range(50)))
        until(lambda: sub.state().backlog == 1 and held)
        state = sub.state()
        assert (state.lag, state.blocked_keys, len(state.blocked)) == (51, 0, 1)
        assert state.oldest == held[0].publish_time
        held[0].ack()
        until(lambda: sub.state().backlog == 0)
    assert sub.state().oldest is None


def test_no_backlog_is_left_after_all_is_acked(ps: PubSub, sub: Subscription, cluster: MemoryCluster) -> None:
    publish(ps, *(f"k{number}" for number in range(20)))
    first: set[str | None] = set()

    def fail_once(message: Message) -> bool:
        seen = message.ordering_key in first
        first.add(message.ordering_key)
        return not seen

    handler = Handler(fail_once)
    with sub.pull(handler):
        handler.wait_for(20)
    state = elsewhere(cluster)
    assert (state.backlog, state.waiting_retry, state.parked, state.blocked_keys) == (0, 0, 0, 0)
    assert state.oldest is None


def test_messages_of_an_unordered_subscription_block_no_key(ps: PubSub, cluster: MemoryCluster) -> None:
    ps.create_topic("orders", partitions=1)
    sub = ps.create_subscription("billing", "orders", retry=IN_AN_HOUR)
    publish(ps, "a", "a", None)
    with sub.pull(Message.nack):
        until(lambda: sub.state().waiting_retry == 3)
    assert elsewhere(cluster).blocked_keys == 0


# -- dead letters ------------------------------------------------------------------------------------------------


def test_dead_letters_count_until_they_are_replayed_or_purged(ps: PubSub, cluster: MemoryCluster) -> None:
    sub = made(ps, on_exhausted="dead_letter")
    other = ps.create_subscription(
        "mail", "orders", retry=QUICK, dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5)
    )
    publish(ps, "a", "b", "c", "d")
    letters = kill(sub, 4)
    kill(other, 4)
    assert elsewhere(cluster).dead_letters == 4, "those of the other subscription aren't ours"
    assert elsewhere(cluster).backlog == 0
    sub.purge_dead_letters(ids=[letters[0].id])
    assert sub.state().dead_letters == 3
    sub.replay_dead_letters(ids=[letters[1].id])
    state = sub.state()
    assert (state.dead_letters, state.backlog, state.waiting_retry) == (2, 1, 1)


def test_of_a_large_dead_letter_topic_the_newest_records_are_read(ps: PubSub, cluster: MemoryCluster) -> None:
    sub = made(ps, on_exhausted="dead_letter")
    for number in range(30):
        cluster.append("dead", 0, b"of another program %d" % number)
    publish(ps, "a")
    kill(sub, 1)
    few, none = elsewhere(cluster, limit=10), elsewhere(cluster, limit=0)
    assert few.dead_letters == 1
    assert few.unread_dead_letters >= 20
    assert none.dead_letters == 0
    assert none.unread_dead_letters == few.unread_dead_letters + 10
    assert elsewhere(cluster).unread_dead_letters == 0


@pytest.mark.parametrize(
    ("error", "count"),
    [
        (PermissionDenied("topic 'dead': no right to read it"), None),
        (BrokerUnavailable("no leader"), None),
        (NotFound("gone"), 0),
    ],
)
def test_a_dead_letter_topic_that_cannot_be_read_fails_no_state(
    ps: PubSub, cluster: MemoryCluster, error: PubSubError, count: int | None
) -> None:
    class Denied(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            return error if (operation, name) == ("fetch", "dead") else None

    made(ps, on_exhausted="dead_letter")
    cluster.append("dead", 0, b"x")
    with another(cluster, Denied()) as other:
        assert other.subscription("billing").state().dead_letters == count


def test_an_end_that_no_leader_tells_is_asked_for_again(
    ps: PubSub, sub: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryAdmin, "readable_ends", lambda *_: {})
    with pytest.raises(BrokerUnavailable, match=r"the end of orders\[0\] isn't known.*try again"):
        sub.state()


# -- what the log says -------------------------------------------------------------------------------------------


def test_finished_runs_above_a_gap_are_subtracted_from_metadata_and_checkpoint(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    publish(ps, *(f"k{number}" for number in range(1000)))
    wait(cluster, topic_id, range(10))
    named = write(cluster, RETRY.topic, (1, 4), main=((1, 400),), topic_id=topic_id)
    store(cluster, HOME, 0, finished((0, 1), (400, 401), (500, 990), named=named))
    store(cluster, RETRY, 0, finished((5, 10), named=named))
    state = sub.state()
    assert state.lag == 1000
    assert (state.waiting_retry, state.backlog) == (2, (500 - 401) + 10 + 2)


def test_a_checkpoint_that_is_gone_was_replaced_so_the_positions_are_read_again(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    publish(ps, *(f"k{number}" for number in range(1000)))
    old = write(cluster, RETRY.topic, main=((1, 400),), topic_id=topic_id)
    new = write(cluster, RETRY.topic, main=((1, 900),), nonce=6, topic_id=topic_id)
    store(cluster, HOME, 0, finished(named=old))
    cluster.truncate(RETRY.topic, 0, new.offset)

    class Meanwhile(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            if operation == "fetch":
                store(cluster, HOME, 0, finished(named=new))
            return None

    with another(cluster, Meanwhile()) as other:
        assert other.subscription("billing").state().backlog == 101
    store(cluster, HOME, 0, finished(named=old))
    assert sub.state().backlog == 1000, "it stays gone: an upper bound"


def test_what_a_state_asks_for_changes_nothing(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    asked: set[str] = set()

    class Noting(FaultPlan):
        def request(self, operation: str, name: str) -> PubSubError | None:
            asked.add(operation)
            return None

    publish(ps, "a", "b")
    wait(cluster, topic_id, [0])
    cluster.append("dead", 0, b"x")
    with another(cluster, Noting()) as other:
        other.subscription("billing").state()
    assert asked <= {
        *("subscriptions", "topics", "topic", "group_members", "group_positions"),
        *("readable_ends", "last_stable_offsets", "log_ranges", "fetch", "topic_names"),
    }
    assert not cluster.group("billing").members


def test_markers_and_deleted_messages_are_no_backlog(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster
) -> None:
    publish(ps, "a", "b", "c")
    cluster.skip_offsets("orders", 0, 40)
    assert elsewhere(cluster).backlog == 3
    cluster.truncate("orders", 0, 2)
    state = elsewhere(cluster)
    assert (state.backlog, state.lag) == (1, 43)
    cluster.truncate("orders", 0, 3)
    assert (elsewhere(cluster).backlog, elsewhere(cluster).oldest) == (0, None)


def test_beyond_the_offsets_that_are_read_a_marker_counts_as_a_message(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "LOOK", 10)
    cluster.skip_offsets("orders", 0, 5)
    publish(ps, *(f"k{number}" for number in range(10)))
    cluster.skip_offsets("orders", 0, 3)
    assert elsewhere(cluster).backlog == 13


def test_what_retention_has_deleted_is_no_backlog_however_much_it_is(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "LOOK", 10)
    publish(ps, *(f"k{number}" for number in range(60)))
    cluster.truncate("orders", 0, 40)
    assert elsewhere(cluster).backlog == 20


def test_a_message_at_both_places_counts_once(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    publish(ps, "k0", "k1", "k2")
    store(cluster, HOME, 1)
    wait(cluster, topic_id, [0, 1, 1])
    assert elsewhere(cluster).backlog == 3


def test_the_retry_topic_is_read_up_to_the_limit_and_counted_beyond(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    publish(ps, *(f"k{number}" for number in range(50)))
    store(cluster, HOME, 50)
    wait(cluster, topic_id, range(50), due=FOREVER)
    part, none = elsewhere(cluster, limit=20), elsewhere(cluster, limit=0)
    assert (part.backlog, part.parked, part.waiting_retry, part.unread_retry) == (50, 20, 30, 30)
    assert (part.blocked_keys, len(part.blocked)) == (20, 20)
    assert (none.backlog, none.parked, none.waiting_retry, none.unread_retry) == (50, 0, 50, 50)
    assert none.oldest is None
    with pytest.raises(InvalidArgument, match="limit must be 0 or more, not -1"):
        elsewhere(cluster, limit=-1)


def test_large_bodies_end_the_reading_sooner(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    for origin in range(10):
        headers = retry_headers(None, RetryInfo(topic_id, 0, origin))
        cluster.append(RETRY.topic, 0, b"x" * 10_000, b"k", headers)
    state = elsewhere(cluster, limit=10)
    assert (state.waiting_retry, state.unread_retry) == (10, 8)


def test_what_is_no_message_is_no_backlog(
    ps: PubSub, sub: Subscription, cluster: MemoryCluster, topic_id: str
) -> None:
    write(cluster, RETRY.topic, topic_id=topic_id)
    assert elsewhere(cluster).backlog == 0
    cluster.append(RETRY.topic, 0, b"rubbish", b"k")
    state = elsewhere(cluster)
    assert (state.backlog, state.waiting_retry) == (1, 1), "unreadable, and not finished"
