"""The catalog of topics and subscriptions, kept in one compacted topic of the cluster.

A record's key is `kind:name`, its value the JSON of its pydantic model, which carries a version. Further kinds
(schemas, snapshots) are one `Kind` more.

Rules
1. A change is refused with `FailedPrecondition` if the stored record isn't the one that its author read.
2. A record that can't be read (a newer version, damage) doesn't hide others: it is logged once and left out of
   listings; reading it by name, or overwriting it, is `FailedPrecondition`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from kafka_pubsub.config import ConnectorRecord, DelayRecord, SubscriptionRecord, TopicRecord, Value
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.compacted_log import CATALOG_TOPIC, CatalogLog, unreadable
from kafka_pubsub.log.ports import Catalog

__all__ = ["KafkaCatalog", "Kind"]

#: The name of the only record of the delays.
DELAYS = "partitions"

_LOGGER = logging.getLogger("kafka_pubsub.catalog")

_Record = TypeVar("_Record", bound=Value)


class KafkaCatalog(Catalog):
    """A `Catalog` in Kafka."""

    def __init__(
        self, handles: ClientFactory, admin: KafkaAdmin, *, create: bool = True, topic: str = CATALOG_TOPIC
    ) -> None:
        self._log = CatalogLog(handles, admin, create=create, topic=topic)
        self._topics = Kind("topic", TopicRecord, self._log)
        self._subscriptions = Kind("subscription", SubscriptionRecord, self._log)
        self._connectors = Kind("connector", ConnectorRecord, self._log)
        self._delays = Kind("delays", DelayRecord, self._log)

    def topics(self) -> Mapping[str, TopicRecord]:
        """Returns all topics by name."""
        return self._topics.all()

    def subscriptions(self) -> Mapping[str, SubscriptionRecord]:
        """Returns all subscriptions by name."""
        return self._subscriptions.all()

    def put_topic(self, record: TopicRecord, previous: TopicRecord | None) -> None:
        """Stores a topic unless another writer was faster."""
        self._topics.put(record.name, record, previous)

    def remove_topic(self, previous: TopicRecord) -> None:
        """Removes a topic unless another writer changed it."""
        self._topics.put(previous.name, None, previous)

    def put_subscription(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None:
        """Stores a subscription unless another writer was faster."""
        self._subscriptions.put(record.name, record, previous)

    def remove_subscription(self, previous: SubscriptionRecord) -> None:
        """Removes a subscription unless another writer changed it."""
        self._subscriptions.put(previous.name, None, previous)

    def connectors(self) -> Mapping[str, ConnectorRecord]:
        """Returns the stored records of workers' units, by name."""
        return self._connectors.all()

    def put_connector(self, record: ConnectorRecord, previous: ConnectorRecord | None) -> None:
        """Stores a unit's record unless another writer was faster."""
        self._connectors.put(record.name, record, previous)

    def remove_connector(self, previous: ConnectorRecord) -> None:
        """Removes a unit's record unless another writer changed it."""
        self._connectors.put(previous.name, None, previous)

    def delays(self) -> DelayRecord | None:
        """Returns the number of partitions of the delays; None: they have as many as they were made with."""
        return self._delays.all().get(DELAYS)

    def put_delays(self, record: DelayRecord, previous: DelayRecord | None) -> None:
        """Stores the number of partitions of the delays unless another writer was faster."""
        self._delays.put(DELAYS, record, previous)

    def close(self) -> None:
        """Closes the clients; the next use would make new ones."""
        self._log.close()


class Kind(Generic[_Record]):
    """One kind of record."""

    def __init__(self, kind: str, model: type[_Record], log: CatalogLog) -> None:
        self._kind = kind
        self._model = model
        self._log = log
        # Text -> the record that it encodes, for the texts of the last call: most stay the same from call to call.
        self._parsed: dict[tuple[str, bytes], _Record | FailedPrecondition] = {}
        # The values of the last call, and what was made of them.
        self._of: Mapping[str, bytes] | None = None
        self._all: Mapping[str, _Record] = {}

    def all(self) -> Mapping[str, _Record]:
        """Returns the readable records by name; the same object while nothing changes."""
        values = self._log.values()
        if values is not self._of:
            self._of, self._all = values, self._read(values)
        return self._all

    def _read(self, values: Mapping[str, bytes]) -> Mapping[str, _Record]:
        prefix = f"{self._kind}:"
        found = {}
        parsed: dict[tuple[str, bytes], _Record | FailedPrecondition] = {}
        for key, text in values.items():
            if key.startswith(prefix):
                parsed[key, text] = found[key.removeprefix(prefix)] = self._parse(key, text)
        self._parsed = parsed
        return _Records(found)

    def put(self, name: str, record: _Record | None, previous: _Record | None) -> None:
        """Stores or (None) removes a record."""
        key = f"{self._kind}:{name}"
        value = None if record is None else record.model_dump_json().encode()
        tries = 0

        def decide(values: Mapping[str, bytes]) -> bytes | None:
            nonlocal tries
            tries += 1
            stored = self._stored(key, values)
            # At a second try the first one may be stored: its answer was lost.
            if stored == previous or (tries > 1 and stored == record):
                return value
            raise FailedPrecondition(
                f"{self._kind} {name!r} was changed by another client in the meantime: read it again and retry"
            )

        self._log.change(key, f"{self._kind} {name!r}", decide)

    def _stored(self, key: str, values: Mapping[str, bytes]) -> _Record | None:
        text = values.get(key)
        if text is None:
            return None
        found = self._parse(key, text)
        if isinstance(found, FailedPrecondition):
            raise found
        return found

    def _parse(self, key: str, text: bytes) -> _Record | FailedPrecondition:
        known = self._parsed.get((key, text))
        if known is not None:
            return known
        try:
            return self._model.model_validate_json(text)
        except (InvalidArgument, ValueError) as failure:
            why = "; ".join(str(failure).splitlines()[:3])
            refused = unreadable(key, why)
            _LOGGER.warning("%s", refused)
            return refused


class _Records(Mapping[str, _Record]):
    """Lists what could be read; asking for a record that couldn't raises its `FailedPrecondition`."""

    def __init__(self, found: Mapping[str, _Record | FailedPrecondition]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> _Record:
        record = self._found[name]
        if isinstance(record, FailedPrecondition):
            raise record
        return record

    def __iter__(self) -> Iterator[str]:
        return (name for name, record in self._found.items() if not isinstance(record, FailedPrecondition))

    def __len__(self) -> int:
        return sum(1 for _ in self)
