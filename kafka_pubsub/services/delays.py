"""The service that brings delayed messages home, as its user starts it."""

from __future__ import annotations

from collections.abc import Callable

from kafka_pubsub.app import PubSub
from kafka_pubsub.services.delay_router import DelayRole
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.lifecycle import Service
from kafka_pubsub.services.metrics import ServiceMetrics

__all__ = ["DelayRouter"]


class DelayRouter(Service):
    """Brings delayed messages home when they are due; any number of routers share the work.

    Its topics are made if they are missing. `tiers` (default: those that the cluster has, else 28) says how long a
    delay may be: 2**tiers - 1 seconds; 12 tiers hold an hour. `partitions` (default: those that the cluster has, else
    4) is how many routers can work at the same time.

    Example:
        with PubSub("localhost:9092") as ps, DelayRouter(ps) as router:
            ps.topic("orders").publish(b"...", delay=600).result(timeout=10)
            router.health().ok
    """

    def __init__(self, pubsub: PubSub, *, tiers: int | None = None, partitions: int | None = None) -> None:
        cluster = pubsub._cluster

        def make_engine(metrics: ServiceMetrics, clock: Callable[[], int]) -> Engine:
            layout = cluster.delay_topics.make(tiers, partitions)
            role = DelayRole(cluster.backend, layout.tiers, layout.partitions, metrics, clock)
            return Engine(cluster.backend, role, clock, metrics)

        super().__init__("delay router", make_engine)
