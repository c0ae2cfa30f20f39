"""The `Catalog` port for the in-memory Kafka: which topics and subscriptions exist.

Rules
1. Records are stored as text, as in Kafka's catalog, so that no caller can change a stored record.
2. A change names the record that the caller read; if another one is stored by now, the change is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from kafka_pubsub.config import ConnectorRecord, DelayRecord, SubscriptionRecord, TopicRecord, Value
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.ports import Catalog

__all__ = ["MemoryCatalog"]

_Record = TypeVar("_Record", TopicRecord, SubscriptionRecord, ConnectorRecord, DelayRecord)
_Value = TypeVar("_Value", bound=Value)


class _Records(Mapping[str, _Value]):
    """The records of a moment by name; each is read when it is asked for, because most callers ask for one."""

    def __init__(self, texts: dict[str, str], model: type[_Value]) -> None:
        self._texts, self._model = texts, model

    def __getitem__(self, name: str) -> _Value:
        return self._model.model_validate_json(self._texts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return repr(dict(self))


class MemoryCatalog(Catalog):
    """A `Catalog` in memory. All catalogs of one cluster show the same records."""

    def __init__(self, cluster: MemoryCluster, faults: FaultPlan) -> None:
        self._cluster = cluster
        self._faults = faults

    def topics(self) -> Mapping[str, TopicRecord]:
        """Returns all topics by name."""
        self._may("topics", "")
        return self._all("topic", TopicRecord)

    def subscriptions(self) -> Mapping[str, SubscriptionRecord]:
        """Returns all subscriptions by name."""
        self._may("subscriptions", "")
        return self._all("subscription", SubscriptionRecord)

    def put_topic(self, record: TopicRecord, previous: TopicRecord | None) -> None:
        """Stores a topic unless another writer has changed it."""
        self._may("put_topic", record.name)
        self._replace("topic", record.name, record, previous, TopicRecord)

    def remove_topic(self, previous: TopicRecord) -> None:
        """Removes a topic unless another writer has changed it."""
        self._may("remove_topic", previous.name)
        self._replace("topic", previous.name, None, previous, TopicRecord)

    def put_subscription(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None:
        """Stores a subscription unless another writer has changed it."""
        self._may("put_subscription", record.name)
        self._replace("subscription", record.name, record, previous, SubscriptionRecord)

    def remove_subscription(self, previous: SubscriptionRecord) -> None:
        """Removes a subscription unless another writer has changed it."""
        self._may("remove_subscription", previous.name)
        self._replace("subscription", previous.name, None, previous, SubscriptionRecord)

    def connectors(self) -> Mapping[str, ConnectorRecord]:
        """Returns the stored records of workers' units, by name."""
        self._may("connectors", "")
        return self._all("connector", ConnectorRecord)

    def put_connector(self, record: ConnectorRecord, previous: ConnectorRecord | None) -> None:
        """Stores a unit's record unless another writer has changed it."""
        self._may("put_connector", record.name)
        self._replace("connector", record.name, record, previous, ConnectorRecord)

    def remove_connector(self, previous: ConnectorRecord) -> None:
        """Removes a unit's record unless another writer has changed it."""
        self._may("remove_connector", previous.name)
        self._replace("connector", previous.name, None, previous, ConnectorRecord)

    def delays(self) -> DelayRecord | None:
        """Returns the number of partitions of the delays; None: they have as many as they were made with."""
        self._may("delays", "")
        return self._all("delays", DelayRecord).get("partitions")

    def put_delays(self, record: DelayRecord, previous: DelayRecord | None) -> None:
        """Stores the number of partitions of the delays unless another writer has changed it."""
        self._may("put_delays", "partitions")
        self._replace("delays", "partitions", record, previous, DelayRecord)

    def close(self) -> None:
        """Does nothing."""

    def _all(self, kind: str, model: type[_Record]) -> Mapping[str, _Record]:
        with self._cluster.changed:
            texts = [(name, text) for (found, name), text in self._cluster.catalog.items() if found == kind]
        return _Records(dict(sorted(texts)), model)

    def _replace(
        self, kind: str, name: str, record: _Record | None, previous: _Record | None, model: type[_Record]
    ) -> None:
        with self._cluster.change():
            text = self._cluster.catalog.get((kind, name))
            stored = None if text is None else model.model_validate_json(text)
            if stored != previous:
                raise FailedPrecondition(
                    f"{kind} {name} was changed by another client in the meantime: read it again and retry"
                )
            if record is None:
                self._cluster.catalog.pop((kind, name), None)
            else:
                self._cluster.catalog[kind, name] = record.model_dump_json()

    def _may(self, operation: str, name: str) -> None:
        error = self._faults.request(operation, name)
        if error is not None:
            raise error
