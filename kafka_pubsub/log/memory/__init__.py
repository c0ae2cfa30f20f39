"""A Kafka in memory: the client's ports without a broker, for users' tests and the simulation.

Example:
    first = MemoryBackend()
    second = MemoryBackend(cluster=first.cluster)  # another process on the same cluster
"""

from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.clock import Clock, SystemClock, VirtualClock
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan, RequestOutcome, Step
from kafka_pubsub.log.memory.record import MemoryRecord

__all__ = [
    "Clock",
    "FaultPlan",
    "MemoryBackend",
    "MemoryCluster",
    "MemoryRecord",
    "RequestOutcome",
    "Step",
    "SystemClock",
    "VirtualClock",
]
