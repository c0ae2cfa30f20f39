"""What a cluster refuses before it starts anything, and how a broker's view of it is read."""

from __future__ import annotations

import pytest

from kafka_pubsub import InvalidArgument
from kafka_pubsub.local import LocalCluster, LocalKafkaError
from kafka_pubsub.local.metadata import cluster_view
from kafka_pubsub.local.ports import free_ports


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


def test_nobody_there_is_no_view() -> None:
    assert cluster_view(free_ports(1)[0]) is None
