"""What tests of a topic whose only broker is killed need: where it lies, when others took over, what was written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from kafka_pubsub.log.ports import Backend, Transactions
from kafka_pubsub.model import Ending, Membership, NewRecord, Outcome, Positions, PositionsLater
from tests.cluster_view import PartitionView, cluster_view
from tests.local_cluster import LocalCluster
from tests.support import until

__all__ = ["PATIENCE", "Written", "leader_of", "wait_until_taken_over"]

PATIENCE = 120.0


def _ports(cluster: LocalCluster) -> list[int]:
    return [int(each.rpartition(":")[2]) for each in cluster.bootstrap.split(",")]


def leader_of(cluster: LocalCluster, topic: str) -> int:
    """Returns the broker that leads the topic's first partition."""
    found: list[int] = []

    def known() -> bool:
        view = cluster_view(_ports(cluster)[0])
        found[:] = [each.leader for each in view.partitions if each.topic == topic] if view else []
        return bool(found) and found[0] > 0

    until(known, f"a leader of {topic}", PATIENCE)
    return found[0]


def wait_until_taken_over(cluster: LocalCluster, dead: int) -> None:
    """Waits until, by all other brokers, each partition with other replicas has a leader and does without the dead one.

    Before that Kafka itself holds up whatever waits for all replicas, or asks a coordinator that was there.
    """
    ports = [port for node, port in zip(cluster.nodes, _ports(cluster), strict=True) if node != dead]

    def over(each: PartitionView) -> bool:
        alone = each.replicas == {dead}
        return alone or (each.leader not in (-1, dead) and dead not in each.in_sync)

    def all_over() -> bool:
        views = [cluster_view(port) for port in ports]
        return all(view is not None and all(map(over, view.partitions)) for view in views)

    until(all_over, f"the others' takeover from broker {dead}", PATIENCE)


class _Transaction(NamedTuple):
    transactional_id: str
    topics: frozenset[str]
    ending: Ending
    #: The topics of the transactions that were open during all of it.
    beside: frozenset[str]


class Written:
    """The transactions of all services of a client: those that have ended, and the topics of those that haven't."""

    def __init__(self, backend: Backend, patch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, frozenset[str]] = {}
        #: Of each open one those that were open before it.
        self._earlier: dict[int, set[int]] = {}
        self._begun = 0
        self.ended: list[_Transaction] = []
        real = backend.transactions
        patch.setattr(backend, "transactions", lambda transactional_id: _Noting(real(transactional_id), self))

    def begin(self, topics: frozenset[str]) -> int:
        """Notes that a transaction begins; returns its number."""
        with self._lock:
            self._begun += 1
            self._earlier[self._begun] = set(self._open)
            self._open[self._begun] = topics
            return self._begun

    def end(self, number: int, transactional_id: str, outcome: Outcome) -> None:
        """Notes that it has ended."""
        with self._lock:
            topics = self._open.pop(number)
            still = self._earlier.pop(number) & self._open.keys()
            beside = frozenset(name for each in still for name in self._open[each])
            self.ended.append(_Transaction(transactional_id, topics, outcome.ending, beside))

    def under_way(self, topic: str) -> set[int]:
        """Returns the numbers of those that are under way, with records for the topic."""
        with self._lock:
            return {number for number, topics in self._open.items() if topic in topics}

    def do_until_beside(
        self, topic: str, act: Callable[[], object], others: frozenset[str], times: int
    ) -> None:
        """Acts until that many transactions for other topics have begun and ended inside transactions for this one."""
        since, end = len(self.ended), time.monotonic() + PATIENCE

        def beside() -> int:
            return sum(topic in each.beside and bool(others & each.topics) for each in self.ended[since:])

        while beside() < times:
            act()
            assert time.monotonic() < end, f"nothing was done while {topic!r} was written to"


class _Noting(Transactions):
    """Transactions that are noted."""

    def __init__(self, real: Transactions, written: Written) -> None:
        self._real, self._written = real, written

    @property
    def transactional_id(self) -> str:
        return self._real.transactional_id

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        number = self._written.begin(frozenset(each.topic for each in records))
        outcome = self._real.transact(records, positions, membership, locate=locate)
        self._written.end(number, self.transactional_id, outcome)
        return outcome

    def fence(self, transactional_id: str) -> None:
        self._real.fence(transactional_id)

    def close(self) -> None:
        self._real.close()
