"""A node's configuration follows from its settings and nothing else."""

from __future__ import annotations

from pathlib import Path

from kafka_pubsub.local.node_config import NodeSettings, log_settings, server_properties


def values(settings: NodeSettings, log_dir: str = "/data") -> dict[str, str]:
    lines = server_properties(settings, Path(log_dir)).splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_one_node_is_its_own_quorum_and_keeps_internal_topics_once() -> None:
    found = values(NodeSettings(port=9092, controller_port=9093))
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9093"
    factors = {
        name: value for name, value in found.items() if "replication.factor" in name or "min.i" in name
    }
    assert len(factors) == 7
    assert set(factors.values()) == {"1"}


def test_nobody_outside_this_machine_can_connect() -> None:
    found = values(NodeSettings(port=9092, controller_port=9093))
    assert found["listeners"] == "CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "CLIENT://127.0.0.1:9092"


def test_a_broker_that_is_starved_may_be_silent_for_longer() -> None:
    assert values(NodeSettings(9092, 9093))["broker.session.timeout.ms"] == "3000"
    assert values(NodeSettings(9092, 9093, session_timeout=60.0))["broker.session.timeout.ms"] == "60000"


def test_a_typing_error_in_a_topic_name_creates_no_topic() -> None:
    assert values(NodeSettings(9092, 9093))["auto.create.topics.enable"] == "false"


def test_a_broker_that_isnt_quick_has_the_limits_of_a_stock_one() -> None:
    limits = {"message.max.bytes", "replica.fetch.max.bytes", "group.initial.rebalance.delay.ms"}
    quick, stock = values(NodeSettings(9092, 9093)), values(NodeSettings(9092, 9093, quick=False))
    assert quick.keys() - stock.keys() == limits
    assert quick["group.initial.rebalance.delay.ms"] == "0"


def test_three_nodes_share_voters_and_replication() -> None:
    voters = ((1, 9101), (2, 9102), (3, 9103))
    found = values(NodeSettings(9092, 9102, node_id=2, voters=voters, replication=3))
    assert found["node.id"] == "2"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9101,2@127.0.0.1:9102,3@127.0.0.1:9103"
    assert found["offsets.topic.replication.factor"] == "3"
    assert found["transaction.state.log.min.isr"] == "2"


def test_a_detour_is_a_listener_that_tells_clients_another_port() -> None:
    found = values(NodeSettings(9092, 9093, detour=(9094, 9999)))
    assert found["listeners"].split(",")[2:] == ["DETOUR://127.0.0.1:9094"]
    assert found["advertised.listeners"] == "CLIENT://127.0.0.1:9092,DETOUR://127.0.0.1:9999"
    assert "DETOUR:PLAINTEXT" in found["listener.security.protocol.map"]
    assert found["inter.broker.listener.name"] == "CLIENT"


def test_paths_are_written_as_java_reads_them() -> None:
    found = values(NodeSettings(9092, 9093), "/tmp/a b\\c/Grüße/😀")
    assert found["log.dirs"] == "/tmp/a b\\\\c/Gr\\u00fc\\u00dfe/\\ud83d\\ude00"
    assert log_settings(Path("/é")).isascii()
