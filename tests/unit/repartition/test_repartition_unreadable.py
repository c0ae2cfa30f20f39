"""A change of layout, and records in a retry topic that nobody can read: named, refused, dead-lettered in the end."""

from __future__ import annotations

import zlib

import pytest

from kafka_pubsub import (
    DeadLetterPolicy,
    DeadlineExceeded,
    FailedPrecondition,
    PubSub,
    RepartitionProgress,
    UnreadableRecord,
)
from kafka_pubsub.cli.advice import advice
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.repartition.repartition import FENCE
from kafka_pubsub.subscribe.formats.record import RETRY_HEADER, RetryInfo, encode
from tests.support import until
from tests.unit.repartition.test_repartition import RETRY, Time, commit, counts, home, repartitioner


def test_what_nobody_can_read_is_named_and_refused_until_it_has_somewhere_to_go(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    change = repartitioner(cluster, Time())
    ps.create_topic("orders", partitions=2)
    ps.create_subscription("billing", "orders", message_ordering=True)
    cluster.append(RETRY, 1, b"rubbish", b"k")
    ps.create_subscription("other", "orders", message_ordering=True)
    cluster.append("orders", 0, b"x", b"k")
    commit(backend, {home(0): 1})
    seen: list[RepartitionProgress] = []
    with pytest.raises(DeadlineExceeded):  # others still look for it
        change.run("orders", 5, timeout=FENCE + 10, on_progress=seen.append)
    reason = "it has 0 ps-retry headers instead of one"
    assert seen[-1].unreadable == {"billing": [UnreadableRecord(RETRY, 1, 0, reason)]}
    assert set(seen[-1].stuck) == {"billing"}
    assert seen[-1].waiting == {"billing": 1, "other": 1}
    backend.admin.set_positions("other", {home(0): 1})
    with pytest.raises(FailedPrecondition, match=f"{RETRY}, partition 1, offset 0: {reason}") as refused:
        change.run("orders", 5)
    commands = advice(refused.value)
    assert "`kafka-pubsub subscription update billing --dead-letter-topic " in commands
    assert "`kafka-pubsub topic repartition orders --partitions 5` goes on" in commands
    ps.create_topic("dead")
    ps.update_subscription("billing", dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5))
    with pytest.raises(DeadlineExceeded, match="no process receives"):
        change.run("orders", 5, timeout=10)
    sub = ps.subscription("billing")
    with sub.pull(lambda message: message.ack()):
        until(lambda: bool(list(sub.dead_letters())))
    change.run("orders", 5)
    assert counts(backend) == (5, 5, 5, 5)


def test_what_a_newer_version_has_parked_ends_the_stream_and_is_never_dead_lettered(
    ps: PubSub, backend: MemoryBackend, cluster: MemoryCluster
) -> None:
    topic = ps.create_topic("orders", partitions=1, message_ordering=True)
    ps.create_topic("dead")
    dead = DeadLetterPolicy(topic="dead", max_attempts=5)
    sub = ps.create_subscription("billing", "orders", message_ordering=True, dead_letter=dead)
    topic.publish(b"x", ordering_key="k").result(10)
    body = bytes([2]) + encode(RetryInfo(backend.admin.topic("orders").topic_id, 0, 0))[1:-4] + b"more"
    cluster.append(RETRY, 0, b"x", b"k", [(RETRY_HEADER, body + zlib.crc32(body).to_bytes(4, "big"))])
    stream = sub.pull(lambda message: message.ack())
    with pytest.raises(
        FailedPrecondition, match=r"offset 0 of .* version 2, and this client reads versions up to 1"
    ):
        stream.result(10)
    assert not list(sub.dead_letters())
    assert all(stored.offset == 0 for stored in backend.admin.group_offsets("billing", RETRY).values())
