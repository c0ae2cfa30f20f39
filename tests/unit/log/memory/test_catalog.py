"""The catalog in memory keeps text, so that nobody holds what is stored."""

from __future__ import annotations

import pytest

from kafka_pubsub.config import SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend


def _record(position: int) -> SubscriptionRecord:
    options = SubscriptionOptions()
    return SubscriptionRecord(
        name="s", topic="t", topic_id="1", partitions=1, options=options, positions={0: position}
    )


def test_what_the_caller_does_to_its_copy_changes_nothing_stored() -> None:
    catalog = MemoryBackend().catalog
    given = _record(1)
    catalog.put_subscription(given, None)
    given.positions[0] = 1000
    catalog.subscriptions()["s"].positions[0] = 2000
    assert catalog.subscriptions() == {"s": _record(1)}


def test_backends_over_one_cluster_share_the_catalog() -> None:
    first = MemoryBackend()
    second = MemoryBackend(cluster=first.cluster)
    first.catalog.put_subscription(_record(1), None)
    second.catalog.put_subscription(_record(2), _record(1))
    with pytest.raises(FailedPrecondition):
        first.catalog.remove_subscription(_record(1))
    first.close()
    assert second.catalog.subscriptions() == {"s": _record(2)}
