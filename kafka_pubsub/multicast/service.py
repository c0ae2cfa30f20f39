"""The service that gives messages to causal topics their order, as its user starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from kafka_pubsub.log.ports import Backend
from kafka_pubsub.multicast.role import SequencerRole
from kafka_pubsub.publish.service_watch import ServiceWatch
from kafka_pubsub.services.engine import Engine
from kafka_pubsub.services.lifecycle import Client, Cluster, Service
from kafka_pubsub.services.metrics import ServiceMetrics

__all__ = ["NAME", "Sequencer", "make_sequencer"]

NAME: Final = "sequencer"


class _Cluster(Cluster, Protocol):
    """What a sequencer needs of the cluster of a `PubSub`."""

    sequencer_watch: ServiceWatch


class Sequencer(Service):
    """Gives the messages to causal topics their order, and delivers them; any number of them share the work.

    It takes up new causal topics within a second or two.

    Example:
        with PubSub("localhost:9092") as ps, Sequencer(ps) as sequencer:
            ps.publish_multi(["orders", "stock"], b"...").result(timeout=10)
            sequencer.health().ok
    """

    def __init__(self, pubsub: Client[_Cluster]) -> None:
        cluster = pubsub._cluster
        cluster.sequencer_watch.run_by_program()
        super().__init__(
            NAME, lambda metrics, clock: make_sequencer(cluster.backend, metrics, clock), cluster.clock
        )


def make_sequencer(backend: Backend, metrics: ServiceMetrics, clock: Callable[[], int]) -> Engine:
    """Returns the engine of a sequencer."""
    return Engine(backend, SequencerRole(backend, metrics), metrics, clock)
