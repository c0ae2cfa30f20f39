"""The service that brings delayed messages home, as its user starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kafka_pubsub.delays.layout import DelayLayout
from kafka_pubsub.delays.role import MAX_RATE, DelayRole
from kafka_pubsub.delays.topics import DelayTopics, growth_of
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.publish.service_watch import ServiceWatch
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.lifecycle import Client, Cluster, Service
from kafka_pubsub.services.metrics import ServiceMetrics

__all__ = ["NAME", "DelayRouter", "make_router"]

NAME: Final = "delay router"


class _Cluster(Cluster, Protocol):
    """What a router needs of the cluster of a `PubSub`."""

    router_watch: ServiceWatch

    @property
    def delay_topics(self) -> DelayTopics: ...


class DelayRouter(Service):
    """Brings delayed messages home when they are due; any number of routers share the work.

    Its topics are made if they are missing. `tiers` (default: those that the cluster has, else 28) says how long a
    delay may be: 2**tiers - 1 seconds; 12 tiers hold an hour. `partitions` (default: those that the cluster has, else
    12) is how many routers can work at the same time. `max_rate` (default 20,000) is how many messages this router
    brings home in a second at most: after a time in which none ran, many are overdue. With `begin_again` (default
    False) a router to which the broker can't say any more how far routers were begins at the start of what is left,
    instead of refusing: nothing is lost, and what was handled last may be delivered again.

    Example:
        with PubSub("localhost:9092") as ps, DelayRouter(ps) as router:
            ps.topic("orders").publish(b"...", delay=600).result(timeout=10)
            router.health().ok
    """

    def __init__(
        self,
        pubsub: Client[_Cluster],
        *,
        tiers: int | None = None,
        partitions: int | None = None,
        max_rate: float = MAX_RATE,
        begin_again: bool = False,
    ) -> None:
        if not max_rate > 0:
            raise InvalidArgument(f"max_rate: must be above 0 messages a second, not {max_rate!r}")
        cluster = pubsub._cluster
        # A publisher of this process may be the first that needs the topics.
        cluster.delay_topics.plan(tiers, partitions)
        cluster.router_watch.run_by_program()
        made: list[DelayLayout] = []

        def make_engine(metrics: ServiceMetrics, clock: Callable[[], int]) -> Engine:
            # Once the topics were made as wanted, there may come more tiers and partitions.
            wanted = (None, None) if made else (tiers, partitions)
            made[:] = [cluster.delay_topics.make(*wanted)]
            return make_router(
                cluster.backend, made[0], metrics, clock, max_rate=max_rate, begin_again=begin_again
            )

        super().__init__(NAME, make_engine, cluster.clock)


def make_router(
    backend: Backend,
    layout: DelayLayout,
    metrics: ServiceMetrics,
    clock: Callable[[], int],
    *,
    max_rate: float = MAX_RATE,
    begin_again: bool = False,
) -> Engine:
    """Returns the engine of a router; `max_rate` and `begin_again` are those of `DelayRouter`."""
    growth = growth_of(backend.catalog.delays())
    role = DelayRole(
        backend, layout.tiers, layout.partitions, metrics, max_rate, begin_again=begin_again, growth=growth
    )
    return Engine(backend, role, metrics, clock)
