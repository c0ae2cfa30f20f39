"""The service that gives messages to causal topics their order, as its user starts it."""

from __future__ import annotations

from collections.abc import Callable

from kafka_pubsub.app import PubSub
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.lifecycle import Service
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.sequencer_role import SequencerRole

__all__ = ["Sequencer"]


class Sequencer(Service):
    """Gives the messages to causal topics their order, and delivers them; any number of them share the work.

    It takes up new causal topics within a second or two.

    Example:
        with PubSub("localhost:9092") as ps, Sequencer(ps) as sequencer:
            ps.publish_multi(["orders", "stock"], b"...").result(timeout=10)
            sequencer.health().ok
    """

    def __init__(self, pubsub: PubSub) -> None:
        cluster = pubsub._cluster

        def make_engine(metrics: ServiceMetrics, clock: Callable[[], int]) -> Engine:
            return Engine(cluster.backend, SequencerRole(cluster.backend, metrics), clock, metrics)

        super().__init__("sequencer", make_engine)
