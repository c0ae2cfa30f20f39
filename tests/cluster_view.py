"""A broker's view of its cluster: which brokers are in it, and which replicas keep up.

Theory: a request of Kafka's protocol (metadata, version 2, all topics, internal ones included) tells it; a client
library for that would have to be installed and would hide which broker has answered. Each broker answers from its
own copy of the cluster's state, so a cluster is in sync when all of them say so.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from kafka_pubsub.local.node_config import LOOPBACK
from kafka_pubsub.local.tcp_ports import ask

__all__ = ["ClusterView", "PartitionView", "cluster_view", "missing"]

# Key 3, version 2, correlation 1, no client id, -1: all topics.
_ALL_TOPICS = struct.pack(">hhihi", 3, 2, 1, -1, -1)
# Bytes; room for some hundred thousand partitions.
_LONGEST_ANSWER = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition: which brokers should have it, and which are in sync."""

    topic: str
    number: int
    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as a single broker sees it."""

    brokers: frozenset[int]
    partitions: tuple[PartitionView, ...]


def cluster_view(port: int, timeout_s: float = 2.0, host: str = LOOPBACK) -> ClusterView | None:
    """The view of the broker on this port; None without an answer (in time, or with sense)."""
    answer = ask(port, _ALL_TOPICS, timeout_s, _LONGEST_ANSWER, host)
    try:
        return None if answer is None else _parse(_Reader(answer))
    except (struct.error, UnicodeDecodeError):
        return None


def missing(views: Iterable[tuple[int, ClusterView | None]], nodes: Collection[int]) -> Iterator[str]:
    """What keeps a cluster of these nodes from being in sync, by the views of its nodes; lazily."""
    for node, view in views:
        if view is None:
            yield f"node {node} doesn't answer"
            continue
        if away := set(nodes) - view.brokers:
            yield f"node {node} doesn't see node {min(away)}"
        for each in view.partitions:
            if each.in_sync != each.replicas:
                late = min(each.replicas - each.in_sync, default=each.leader)
                yield f"node {late} is behind in {each.topic}, partition {each.number} (says node {node})"


class _Reader:
    """Kafka's old, fixed-width encoding, read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        length = max(0, self.number("h"))  # -1: none
        (raw,) = struct.unpack_from(f"{length}s", self._data, self._at)
        self._at += length
        return bytes(raw).decode()

    def numbers(self) -> frozenset[int]:
        return frozenset(self.number("i") for _ in range(self.number("i")))


def _parse(reader: _Reader) -> ClusterView:
    reader.number("i")  # correlation
    brokers = []
    for _ in range(reader.number("i")):
        brokers.append(reader.number("i"))
        reader.text(), reader.number("i"), reader.text()  # host, port, rack
    reader.text(), reader.number("i")  # the cluster's id, the controller
    partitions: list[PartitionView] = []
    for _ in range(reader.number("i")):
        reader.number("h")  # the topic's error
        topic, _internal = reader.text(), reader.number("b")
        partitions += [_partition(reader, topic) for _ in range(reader.number("i"))]
    return ClusterView(frozenset(brokers), tuple(partitions))


def _partition(reader: _Reader, topic: str) -> PartitionView:
    reader.number("h")  # its error
    number, leader = reader.number("i"), reader.number("i")
    return PartitionView(topic, number, leader, replicas=reader.numbers(), in_sync=reader.numbers())
