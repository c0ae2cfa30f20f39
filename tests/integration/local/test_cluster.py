"""`LocalCluster` on the real thing: nodes go and come back, what was acknowledged stays, nothing is left behind.

A single cluster for the module, because three brokers take seconds and memory; every test leaves it whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kafka_pubsub import InvalidArgument, Message, PubSub
from kafka_pubsub.local import LocalKafkaError, processes
from kafka_pubsub.local.tcp_ports import free_ports
from tests.acceptance.support import PATIENCE, until
from tests.cluster_view import ClusterView, cluster_view
from tests.integration.local.records import QUIET, append, contents, create_topic
from tests.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, detour_ports=free_ports(3)) as cluster:
        yield cluster


@pytest.fixture
def whole(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster with all its nodes, before the test and after it."""
    cluster.wait_in_sync()
    yield cluster
    for node in cluster.nodes:
        if cluster.running(node):
            cluster.cont(node)
    cluster.start()


def view_of(cluster: LocalCluster, node: int = 1) -> ClusterView:
    address = cluster.bootstrap.split(",")[node - 1]
    view = cluster_view(int(address.rpartition(":")[2]))
    assert view is not None
    return view


def test_three_brokers_replicate_everything_three_times(whole: LocalCluster) -> None:
    with PubSub(whole.bootstrap) as ps:
        name = f"cluster-{uuid.uuid4().hex}"
        topic = ps.create_topic(name, partitions=3, message_ordering=True)
        subscription = ps.create_subscription(f"{name}-s", topic, message_ordering=True)
        seen: list[bytes] = []

        def handle(message: Message) -> None:
            seen.append(message.data)
            message.ack()

        with subscription.pull(handle):
            topic.publish(b"hello", ordering_key="k").result(PATIENCE)
            until(lambda: seen == [b"hello"])
    view = view_of(whole)
    assert view.brokers == {1, 2, 3}
    topics = {each.topic for each in view.partitions}
    assert topics >= {name, "__consumer_offsets", "_kafka_pubsub.catalog"}
    assert {(each.topic, each.replicas) for each in view.partitions} == {
        (topic, frozenset({1, 2, 3})) for topic in topics
    }
    admin = AdminClient({"bootstrap.servers": whole.bootstrap, **QUIET})
    for topic_name in (name, "__consumer_offsets"):
        asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic_name)])
        assert next(iter(asked.values())).result(PATIENCE)["min.insync.replicas"].value == "2"


def test_one_node_may_be_killed_another_stopped_and_what_was_stored_stays(whole: LocalCluster) -> None:
    topic = create_topic(whole.bootstrap)
    address, first = whole.bootstrap, whole.pid(2)
    append(address, topic, b"all here")
    whole.kill(2)
    assert (whole.running(2), whole.pid(2)) == (False, None)
    append(address, topic, b"without 2")
    whole.start(2)
    assert whole.pid(2) != first
    whole.wait_in_sync()
    assert all(each.in_sync == {1, 2, 3} for each in view_of(whole, 2).partitions)
    whole.stop(3)
    append(address, topic, b"without 3")
    whole.start(3)
    whole.wait_in_sync()
    assert whole.bootstrap == address
    assert contents(address, topic, 3) == [b"all here", b"without 2", b"without 3"]


def test_a_paused_node_is_missed_and_comes_back(whole: LocalCluster) -> None:
    topic = create_topic(whole.bootstrap)
    append(whole.bootstrap, topic, b"before")
    pid = whole.pid(1)
    whole.pause(1)
    assert whole.running(1)
    with pytest.raises(LocalKafkaError, match="isn't in sync after 1 s: node 1 doesn't answer") as caught:
        whole.wait_in_sync(timeout=1)
    assert caught.value.code == 14
    append(whole.bootstrap, topic, b"meanwhile")
    whole.cont(1)
    whole.wait_in_sync()
    assert whole.pid(1) == pid
    assert contents(whole.bootstrap, topic, 2) == [b"before", b"meanwhile"]


def test_a_rolling_restart_gives_every_node_a_new_process_and_keeps_the_data(whole: LocalCluster) -> None:
    topic = create_topic(whole.bootstrap)
    append(whole.bootstrap, topic, b"kept")
    before = [whole.pid(node) for node in whole.nodes]
    whole.rolling_restart()
    after = [whole.pid(node) for node in whole.nodes]
    assert not set(before) & set(after)
    assert None not in after
    assert contents(whole.bootstrap, topic, 1) == [b"kept"]


def test_without_a_majority_a_single_start_is_refused_and_all_at_once_works(whole: LocalCluster) -> None:
    whole.kill(1)
    with pytest.raises(LocalKafkaError, match=r"Node 1 isn't running: start\(1\)"):
        whole.wait_in_sync()
    whole.kill(2)
    whole.kill(3)
    with pytest.raises(LocalKafkaError, match=r"With 1 of 3 nodes there is no majority"):
        whole.start(2)
    assert not whole.running(2)
    whole.start()
    whole.wait_in_sync()


def test_the_detour_is_reported_to_those_who_come_through_it(whole: LocalCluster) -> None:
    direct = {each.partition(":")[2] for each in whole.bootstrap.split(",")}
    detour = {each.partition(":")[2] for each in whole.detour_bootstrap.split(",")}
    assert not direct & detour
    for node in whole.nodes:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{whole.behind_detour(node)}", **QUIET})
        assert {str(each.port) for each in admin.list_topics(timeout=PATIENCE).brokers.values()} == detour


@pytest.mark.parametrize("use", [LocalCluster.kill, LocalCluster.stop, LocalCluster.pause, LocalCluster.cont])
def test_what_isnt_there_is_named(whole: LocalCluster, use: object) -> None:
    assert callable(use)
    with pytest.raises(InvalidArgument, match="node is 4; there are the nodes 1 to 3"):
        use(whole, 4)


def test_a_kept_directory_is_the_same_cluster_again_and_no_other(tmp_path: Path) -> None:
    with LocalCluster(2, tmp_path) as cluster:
        topic = create_topic(cluster.bootstrap)
        append(cluster.bootstrap, topic, b"kept")
    with pytest.raises(LocalKafkaError, match="holds a cluster of 2 nodes, and 1 were asked for"):
        LocalCluster(1, tmp_path).start()
    with LocalCluster(2, tmp_path) as cluster:
        assert contents(cluster.bootstrap, topic, 1) == [b"kept"]


PARENT = """
import time
from kafka_pubsub.local import processes
from tests.local_cluster import LocalCluster
with LocalCluster(3) as cluster:
    cluster.kill(1)
    cluster.pause(2)
    pids = [cluster.pid(2), cluster.pid(3)]
    print(cluster.data_dir, *(f"{pid} {processes.identity(pid)}" for pid in pids), flush=True)
    time.sleep(300)
"""


def test_nodes_paused_ones_too_and_their_data_go_when_their_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        folder, *rest = parent.stdout.readline().split()
        brokers = list(zip(map(int, rest[::2]), rest[1::2], strict=True))
        assert len(brokers) == 2
        assert all(processes.is_alive(*each) for each in brokers)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(30)
    deadline = time.monotonic() + 30
    while any(processes.is_alive(*each) for each in brokers) or Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
