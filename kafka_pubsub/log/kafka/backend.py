"""One Apache Kafka cluster: checks the settings and makes the adapters.

Rules
1. The constructor checks everything that can be checked without a connection, and makes no thread and no socket;
   the first use of an adapter connects. So a backend that wasn't used yet may be carried through a fork.
2. `close` closes the adapters that it made, in the order in which they depend on each other. A second call does
   nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

from kafka_pubsub.config import Batching
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.catalog import KafkaCatalog
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration, GivenValue
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.log.kafka.record_fetch import KafkaRecordFetch
from kafka_pubsub.log.kafka.tail import KafkaTail
from kafka_pubsub.log.kafka.transactions import KafkaTransactions
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition

if TYPE_CHECKING:
    from kafka_pubsub.log.kafka.transient_writer import KafkaTransientWriter
    from kafka_pubsub.log.kafka.writer import KafkaLogWriter

__all__ = ["GroupProtocol", "KafkaBackend"]

GroupProtocol = Literal["classic", "consumer"]

_Other = TypeVar("_Other", KafkaTransactions, KafkaRecordFetch, KafkaTail)


class KafkaBackend(Backend):
    """A `Backend` over librdkafka.

    `config` holds librdkafka's own settings (security, addresses, buffers); settings on which our promises depend can't
    be set there. `create=False` never makes a topic, the catalog's included.
    """

    def __init__(
        self,
        bootstrap: str | None,
        config: Mapping[str, GivenValue] | None = None,
        *,
        create: bool = True,
        group_protocol: GroupProtocol = "classic",
    ) -> None:
        if group_protocol not in ("classic", "consumer"):
            raise InvalidArgument(f"group_protocol must be 'classic' or 'consumer', not {group_protocol!r}")
        self.handles = ClientFactory(Configuration(bootstrap, config or {}))
        self._group_protocol = group_protocol
        self._admin = KafkaAdmin(self.handles)
        self._catalog = KafkaCatalog(self.handles, self._admin, create=create)
        self._lock = threading.Lock()
        # The adapters that were made. Closing one that its user has closed does nothing.
        self._readers: list[KafkaLogReader] = []
        self._writers: list[KafkaLogWriter | KafkaTransientWriter] = []
        self._others: list[KafkaTransactions | KafkaRecordFetch | KafkaTail] = []

    @property
    def address(self) -> str:
        """The bootstrap addresses, as a text for people."""
        return self.handles.address

    @property
    def clock(self) -> None:
        """None: clients go by the machine's clocks."""
        return

    @property
    def admin(self) -> KafkaAdmin:
        """The requests about topics and groups."""
        return self._admin

    @property
    def catalog(self) -> KafkaCatalog:
        """The catalog of topics and subscriptions."""
        return self._catalog

    def writer(
        self, batching: Batching, max_batch_bytes: int, durable: bool = True
    ) -> KafkaLogWriter | KafkaTransientWriter:
        """Returns a new writer, idempotent if it is durable."""
        from kafka_pubsub.log.kafka.transient_writer import KafkaTransientWriter
        from kafka_pubsub.log.kafka.writer import KafkaLogWriter

        kind = KafkaLogWriter if durable else KafkaTransientWriter
        writer = kind(self.handles, batching, max_batch_bytes)
        with self._lock:
            self._writers.append(writer)
        return writer

    def reader(self, group: str, member: str, *, spread: bool = False, lanes: bool = False) -> KafkaLogReader:
        """Returns a new member of the group, which isn't subscribed yet."""
        protocol = self._group_protocol
        reader = KafkaLogReader(
            self.handles, self._admin, group, member, protocol, spread=spread, lanes=lanes
        )
        with self._lock:
            self._readers = [each for each in self._readers if not each.closed]
            self._readers.append(reader)
        return reader

    def transactions(self, transactional_id: str) -> KafkaTransactions:
        """Returns a transactional writer, which sends nothing before its first use."""
        return self._kept(KafkaTransactions(self.handles, self._admin, transactional_id))

    def record_fetch(self) -> KafkaRecordFetch:
        """Returns a reader of single records."""
        return self._kept(KafkaRecordFetch(self.handles, self._admin))

    def tail(self, partition: TopicPartition, offset: int) -> KafkaTail:
        """Returns a reader of what is stored from the offset on."""
        return self._kept(KafkaTail(self.handles, partition, offset))

    def _kept(self, made: _Other) -> _Other:
        with self._lock:
            self._others = [each for each in self._others if not each.closed]
            self._others.append(made)
        return made

    def close(self) -> None:
        """Closes every adapter that it made. In a forked child it closes none: they belong to the parent."""
        if self.handles.foreign:
            return
        with self._lock:
            readers, self._readers = self._readers, []
            writers, self._writers = self._writers, []
            others, self._others = self._others, []
        for reader in readers:
            reader.close()
        for writer in writers:
            writer.close()
        for other in others:
            other.close()
        self._catalog.close()
        self._admin.close()
        self.handles.close()
