"""The services that a client in memory runs for itself, because no other process could.

Rules
1. Each starts with the first message that needs it, or with the client if such messages may wait in its cluster.
2. A service that the program starts for the same client takes its place.
"""

from __future__ import annotations

from kafka_pubsub.cluster import Cluster
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.service import NAME as ROUTER
from kafka_pubsub.delays.service import make_router
from kafka_pubsub.multicast.service import NAME as SEQUENCER
from kafka_pubsub.multicast.service import make_sequencer
from kafka_pubsub.services.lifecycle import Service

__all__ = ["run_own_services"]


def run_own_services(cluster: Cluster) -> None:
    """Has a client run a delay router and a sequencer for itself; call this before its first use."""

    def start_router() -> Service:
        backend, topics = cluster.backend, cluster.delay_topics
        return Service(
            ROUTER,
            lambda metrics, clock: make_router(backend, topics.make(), metrics, clock),
            backend.clock,
        ).start()

    def start_sequencer() -> Service:
        backend = cluster.backend
        return Service(
            SEQUENCER, lambda metrics, clock: make_sequencer(backend, metrics, clock), backend.clock
        ).start()

    def look() -> None:
        backend = cluster.backend
        if INGEST in backend.admin.topic_names():
            cluster.router_watch.used()
        if any(topic.options.causal for topic in backend.catalog.topics().values()):
            cluster.sequencer_watch.used()

    cluster.router_watch.run_own(start_router)
    cluster.sequencer_watch.run_own(start_sequencer)
    cluster.on_connected = look
