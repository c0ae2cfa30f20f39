"""Faults between a simulated process and the log.

Theory. A plan is asked before each request. Since nothing but requests leaves a process, a process that may die before
each of them may die between any two effects on the world. A request of the fetcher's may take time, too: others
go on before the request is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory import FaultPlan, RequestOutcome
from kafka_pubsub.log.memory.faults import Step
from kafka_pubsub.model import Committed, TopicPartition
from tests.simulation.plan import Plan
from tests.simulation.retry_plan import LATEST, RetryPlan

__all__ = ["Faults"]


class Surroundings(Protocol):
    """A plan's view of the world."""

    @property
    def plan(self) -> Plan: ...
    @property
    def calm(self) -> bool: ...
    def chance(self, probability: float) -> bool: ...
    def between(self, low: float, high: float) -> float: ...
    def refuses(self, topic: str) -> PubSubError | None: ...


class Mortal(Protocol):
    """A process that makes requests."""

    def alive(self) -> None: ...
    def die(self, how: str) -> None: ...
    def waits(self) -> None: ...


class Faults(FaultPlan):
    """The faults between a process and the log; each request is a moment at which the process may die."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.process: Mortal | None = None

    def commit(
        self, group: str, member: str, positions: Mapping[TopicPartition, Committed]
    ) -> RequestOutcome:
        world = self._world
        self._on_its_way()
        if world.calm:
            return RequestOutcome.DONE
        if world.chance(world.plan.refused):
            return RequestOutcome.REFUSED
        if world.chance(world.plan.retry.late_commits):
            return RequestOutcome.LATE
        return RequestOutcome.ANSWER_LOST if world.chance(world.plan.answer_lost) else RequestOutcome.DONE

    def lateness(self) -> float:
        return self._world.between(0.2, LATEST)

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation in ("committed", "high_watermarks", "reachable_ranges"):
            self._on_its_way()
        else:
            self._perhaps_dies()
        return None

    def transaction(self, transactional_id: str, step: Step) -> RequestOutcome:
        world, retry = self._world, self._perhaps_dies()
        if world.calm:
            return RequestOutcome.DONE
        if step is Step.COMMIT and world.chance(retry.unknown):
            return RequestOutcome.ANSWER_LOST if world.chance(0.5) else RequestOutcome.LATE
        if not world.chance(retry.broken_steps):
            return RequestOutcome.DONE
        return RequestOutcome.REFUSED if world.chance(0.5) else RequestOutcome.ANSWER_LOST

    def refuses(self, transactional_id: str, topic: str, key: bytes | None) -> PubSubError | None:
        return self._world.refuses(topic)

    def marker_delay(self, transactional_id: str, target: TopicPartition | str) -> float:
        world, retry = self._world, self._world.plan.retry
        late = not world.calm and world.chance(retry.late_markers)
        return world.between(0.0, LATEST) if late else 0.0

    def read_limit(self, group: str, member: str, limit: int) -> int:
        self._perhaps_dies()
        return limit if self._world.calm else min(limit, self._world.plan.read_limit)

    def _perhaps_dies(self) -> RetryPlan:
        retry, process = self._world.plan.retry, self.process
        if process is not None:
            process.alive()
            if not self._world.calm and self._world.chance(retry.dies):
                process.die("before a request")
        return retry

    def _on_its_way(self) -> None:
        retry, process = self._perhaps_dies(), self.process
        if process is None or self._world.calm:
            return
        if self._world.chance(retry.meanwhile):
            process.waits()
