"""The refusals of a cluster before a start, and how a broker's view of its cluster is read."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from kafka_pubsub import InvalidArgument
from kafka_pubsub.local import LocalKafkaError
from kafka_pubsub.local.tcp_ports import free_ports
from tests.cluster_view import ClusterView, PartitionView, cluster_view
from tests.local_cluster import LocalCluster


@pytest.mark.parametrize("nodes", [0, -1, 10])
def test_an_impossible_number_of_nodes_is_named(nodes: int) -> None:
    with pytest.raises(InvalidArgument, match=f"nodes is {nodes}; it must be from 1 to 9"):
        LocalCluster(nodes)


def test_a_detour_needs_a_port_for_each_node() -> None:
    with pytest.raises(InvalidArgument, match="detour_ports has 1 ports; 3 nodes need 3"):
        LocalCluster(3, detour_ports=[1234])
    with pytest.raises(InvalidArgument, match="port is 0"):
        LocalCluster(1, detour_ports=[0])


def test_what_needs_a_start_says_so() -> None:
    cluster = LocalCluster(3)
    with pytest.raises(LocalKafkaError, match="wasn't started yet"):
        _ = cluster.bootstrap
    with pytest.raises(LocalKafkaError, match="wasn't started yet"):
        _ = cluster.data_dir
    with pytest.raises(LocalKafkaError, match="Node 1 isn't running"):
        cluster.kill(1)
    cluster.close()


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def numbers(*values: int) -> bytes:
    return struct.pack(f">i{len(values)}i", len(values), *values)


# Two brokers, the second without a rack; a single topic, whose second partition misses broker 2.
ANSWER = b"".join(
    [
        struct.pack(">i", 1),
        struct.pack(">i", 2),
        struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", 9092) + text("rack"),
        struct.pack(">i", 2) + text("127.0.0.1") + struct.pack(">ih", 9093, -1),
        text("the-cluster") + struct.pack(">i", 1),
        struct.pack(">ih", 1, 0) + text("orders") + struct.pack(">b", 0),
        struct.pack(">i", 2),
        struct.pack(">hii", 0, 0, 2) + numbers(1, 2) + numbers(2, 1),
        struct.pack(">hii", 0, 1, 1) + numbers(2, 1) + numbers(1),
    ]
)


def view(answer: bytes) -> ClusterView | None:
    """What is made of a broker's answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(100)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        found = cluster_view(listener.getsockname()[1], timeout_s=5.0)
        thread.join()
    return found


def test_a_brokers_answer_says_who_is_there_and_who_keeps_up() -> None:
    both = frozenset({1, 2})
    assert view(ANSWER) == ClusterView(
        both,
        (
            PartitionView("orders", 0, leader=2, replicas=both, in_sync=both),
            PartitionView("orders", 1, leader=1, replicas=both, in_sync=frozenset({1})),
        ),
    )


def test_an_answer_that_breaks_off_or_nobody_at_all_is_no_view() -> None:
    assert view(ANSWER[:-2]) is None
    assert view(b"") is None
    assert cluster_view(free_ports(1)[0]) is None
