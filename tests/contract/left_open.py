"""Transactions that are begun and not ended, as a killed process leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.log.memory import FaultPlan, MemoryCluster, Step
from kafka_pubsub.log.memory.transactions import MemoryTransactions, Steps
from kafka_pubsub.model import Committed, Membership, NewRecord, TopicPartition
from tests.contract.world import LeaveOpen, OpenTransaction

__all__ = ["kafka_leaves_open", "memory_leaves_open"]

#: Seconds; milliseconds are normal.
LIMIT = 20.0


class _InMemory:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def commit(self) -> None:
        assert next(self._steps) is Step.ANSWER


def memory_leaves_open(cluster: MemoryCluster) -> LeaveOpen:
    def leave_open(
        transactional_id: str,
        records: Sequence[NewRecord],
        positions: Mapping[TopicPartition, Committed],
        membership: Membership,
    ) -> OpenTransaction:
        writer = MemoryTransactions(cluster, FaultPlan(), transactional_id)
        steps = writer.steps(records, positions, membership)
        while next(steps) is not Step.COMMIT:
            pass
        return _InMemory(steps)

    return leave_open


def kafka_leaves_open(bootstrap: str) -> LeaveOpen:
    def leave_open(
        transactional_id: str,
        records: Sequence[NewRecord],
        positions: Mapping[TopicPartition, Committed],
        membership: Membership,
    ) -> OpenTransaction:
        from confluent_kafka import Producer
        from confluent_kafka import TopicPartition as KafkaPartition

        class OnKafka:
            def commit(self) -> None:
                producer.commit_transaction(LIMIT)

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                # Milliseconds; the broker ends nothing by itself while a test runs.
                "transaction.timeout.ms": 120_000,
                "retry.backoff.ms": 1,
                # The producer is fenced on purpose, and says so at length.
                "log_level": 0,
            }
        )
        producer.init_transactions(LIMIT)
        producer.begin_transaction()
        for record in records:
            producer.produce(record.topic, record.value, record.key, record.partition)
        assert producer.flush(LIMIT) == 0
        offsets = [KafkaPartition(*at, value.offset or 0, value.metadata) for at, value in positions.items()]
        producer.send_offsets_to_transaction(offsets, membership.token, LIMIT)
        return OnKafka()

    return leave_open
