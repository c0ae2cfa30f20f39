"""Every management call, with the process dying before each of its requests in turn.

Calling it again finishes it, and the world is the same as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.topics.companion_topics import companion_settings
from tests.unit.crashing import Crash, CrashAt, CrashBefore, another, requests_of

Step = Callable[[PubSub], object]


def nothing(ps: PubSub) -> None: ...


def topic(ps: PubSub) -> None:
    ps.create_topic("orders", partitions=3)


def subscription(ps: PubSub) -> None:
    topic(ps)
    ps.create_subscription("billing", "orders")


def deleted_topic(ps: PubSub) -> None:
    subscription(ps)
    ps.delete_topic("orders")


def backend_of(ps: PubSub) -> Backend:
    return ps._cluster._connected().backend


def half_made_elsewhere(ps: PubSub) -> None:
    """A subscription that was begun on another topic, and got as far as its retry topic."""
    topic(ps)
    ps.create_topic("others", partitions=2)
    backend = backend_of(ps)
    assert isinstance(backend, MemoryBackend)
    dying = another(backend.cluster, CrashBefore("set_positions"))
    with pytest.raises(Crash):
        dying.create_subscription("billing", "others")


def beside_a_retry_topic(ps: PubSub) -> None:
    """An operator has made the retry topic."""
    topic(ps)
    admin = backend_of(ps).admin
    admin.create_topic("orders.sub.billing.retry", 3, 1, companion_settings(admin.topic("orders")))


def robbed(ps: PubSub) -> None:
    """Somebody has deleted the retry topic."""
    subscription(ps)
    backend_of(ps).admin.delete_topic("orders.sub.billing.retry")


#: What is there before, and the call.
CALLS: dict[str, tuple[Step, Step]] = {
    "create_topic": (
        nothing,
        lambda ps: ps.create_topic("orders", partitions=3, retention=60, exist_ok=True),
    ),
    "create_topic over a detached subscription": (
        deleted_topic,
        lambda ps: ps.create_topic("orders", partitions=3, exist_ok=True),
    ),
    "adopt_topic": (nothing, lambda ps: ps.adopt_topic("old", message_ordering=True, exist_ok=True)),
    "update_topic": (topic, lambda ps: ps.update_topic("orders", retention=60, message_ordering=True)),
    "delete_topic": (subscription, lambda ps: ps.delete_topic("orders")),
    "create_subscription": (topic, lambda ps: ps.create_subscription("billing", "orders", exist_ok=True)),
    "create_subscription on another topic than before": (
        half_made_elsewhere,
        lambda ps: ps.create_subscription("billing", "orders", exist_ok=True),
    ),
    "create_subscription where a retry topic waits": (
        beside_a_retry_topic,
        lambda ps: ps.create_subscription("billing", "orders", exist_ok=True),
    ),
    "remake_retry_topic": (
        robbed,
        lambda ps: ps.update_subscription("billing", remake_retry_topic=True),
    ),
    "delete_subscription whose topic is gone": (
        deleted_topic,
        lambda ps: ps.delete_subscription("billing"),
    ),
    "update_subscription": (subscription, lambda ps: ps.update_subscription("billing", ack_deadline=60)),
    "delete_subscription": (subscription, lambda ps: ps.delete_subscription("billing")),
}


def world() -> MemoryCluster:
    """A cluster with a topic that isn't ours."""
    backend = MemoryBackend()
    backend.admin.create_topic("old", 2, 1, {})
    return backend.cluster


def seen(cluster: MemoryCluster) -> object:
    """All that is stored, without the ids and times that differ from run to run."""
    backend = MemoryBackend(cluster=cluster)
    admin, catalog = backend.admin, backend.catalog
    topics = {
        name: (admin.topic(name).partitions, dict(admin.topic(name).config)) for name in admin.topic_names()
    }
    ids = {name: admin.topic(name).topic_id for name in topics}
    records = [
        *(
            (each.name, each.options, each.state, each.adopted, each.topic_id == ids.get(each.name))
            for each in catalog.topics().values()
        ),
        *(
            (
                each.name,
                each.options,
                each.state,
                each.detached,
                each.positions,
                each.topic_id == ids.get(each.topic),
                each.retry_topic
                and (
                    each.retry_topic.name,
                    each.retry_topic.adopted,
                    each.retry_topic.positions,
                    each.retry_topic.topic_id == ids.get(each.retry_topic.name),
                ),
            )
            for each in catalog.subscriptions().values()
        ),
    ]
    groups = {
        name: admin.group_offsets("billing", name) for name in topics if admin.group_offsets("billing", name)
    }
    return topics, records, groups


def crash_points() -> Iterator[tuple[str, int]]:
    for name, (before, call) in CALLS.items():
        cluster = world()
        with another(cluster) as ps:
            before(ps)
        yield from ((name, at) for at in range(requests_of(cluster, call)))


@pytest.mark.parametrize(("name", "at"), list(crash_points()))
def test_a_call_that_crashed_is_finished_by_calling_it_again(name: str, at: int) -> None:
    before, call = CALLS[name]
    crashed, undisturbed = world(), world()
    for cluster in (crashed, undisturbed):
        with another(cluster) as ps:
            before(ps)
    dying = another(crashed, CrashAt(at))
    with pytest.raises(Crash):
        call(dying)
    with another(crashed) as ps:
        call(ps)
    with another(undisturbed) as ps:
        call(ps)
    assert seen(crashed) == seen(undisturbed)


def test_the_crash_points_reach_every_write_of_a_call() -> None:
    points = list(crash_points())
    # Three writes at least for everything that is made or deleted, and a look before the first.
    for name in ("create_topic", "delete_topic", "create_subscription", "delete_subscription"):
        assert sum(1 for each, _ in points if each == name) >= 4, name
