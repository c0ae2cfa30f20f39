"""Several `PubSub` over a single cluster in memory, and processes that die at a chosen request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_pubsub import PubSub, PubSubError
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.model import Committed, Run, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from tests.checkpoints import write

__all__ = ["Crash", "CrashAt", "CrashBefore", "FailAt", "another", "checkpointed", "requests_of"]


class Crash(Exception):
    """The process ends here: no handler of ours knows this error, so nothing is tidied up."""


class CrashAt(FaultPlan):
    """Ends the process before its n-th request, counted from 0."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.seen: list[str] = []

    def request(self, operation: str, name: str) -> PubSubError | None:
        if len(self.seen) == self._at:
            raise Crash(operation)
        self.seen.append(operation)
        return None


class CrashBefore(FaultPlan):
    """Ends the process before the first request of that name."""

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation == self._operation:
            raise Crash(operation)
        return None


class FailAt(FaultPlan):
    """Answers an operation with an error, always; `before` runs first, once."""

    def __init__(
        self, operation: str, error: PubSubError | None, before: Callable[[], object] | None = None
    ) -> None:
        self._operation = operation
        self._error = error
        self._before = before

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation != self._operation:
            return None
        before, self._before = self._before, None
        if before is not None:
            before()
        return self._error


def another(cluster: MemoryCluster, faults: FaultPlan | None = None) -> PubSub:
    """Another process on the cluster."""
    return PubSub.in_memory(MemoryBackend(cluster=cluster, faults=faults))


def requests_of(cluster: MemoryCluster, work: Callable[[PubSub], object]) -> int:
    """How many requests the work makes when nothing goes wrong."""
    plan = CrashAt(-1)
    with another(cluster, plan) as ps:
        work(ps)
    return len(plan.seen)


def checkpointed(
    cluster: MemoryCluster,
    retry: str,
    topic_id: str,
    *told: Run,
    fresh: Sequence[Run] = (),
    main: Sequence[Run] = (),
) -> Named:
    """Partition 0 of billing's retry topic gets a checkpoint of these runs, and a commit that names this checkpoint."""
    named = write(cluster, retry, *told, main=main, topic_id=topic_id)
    text = ack_map.encode(AckMap(7, tuple(fresh), checkpoint=named, more=bool(told)), 0)
    with cluster.change():
        assert cluster.group("billing").store(TopicPartition(retry, 0), Committed(0, text)) is None
    return named
