"""What a cluster says of itself and of this client's rights, for `kafka-pubsub doctor`.

Rules
1. A question changes nothing that others see: the transaction that is tried is aborted, and its id is its own.
2. Each question ends after the seconds of an admin's call, whatever the cluster does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection
from confluent_kafka.admin import ConsumerGroupDescription, TopicDescription

from kafka_pubsub.errors import NotFound, PermissionDenied
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.kafka.bounded_calls import takes_connections
from kafka_pubsub.log.kafka.errors import translate
from kafka_pubsub.log.kafka.rights import Doing, id_of, on_topics

__all__ = ["ClusterFacts"]

#: Seconds for a login, for another answer, and for a transaction.
_FIRST: Final = 4.0
_ANSWER: Final = 4.0
_TRANSACTION: Final = 5.0


class ClusterFacts:
    """Asks the cluster of a backend."""

    def __init__(self, backend: KafkaBackend) -> None:
        self._backend = backend
        self._admin = backend.admin

    def silent_addresses(self) -> list[str]:
        """Returns the addresses at which nothing takes connections."""
        return [each for each in self._backend.address.split(",") if not takes_connections(each)]

    def brokers(self) -> int:
        """Logs in, and returns the number of brokers."""
        found = self._admin.ask(
            "reach a broker", lambda client, left: client.describe_cluster(request_timeout=left), _FIRST
        )
        return len(found.nodes or ())

    def cluster_operations(self) -> Collection[str]:
        """Returns the operations on the cluster that this client has the right to."""
        found = self._admin.ask(
            "describe the cluster",
            lambda client, left: client.describe_cluster(
                include_authorized_operations=True, request_timeout=left
            ),
            _ANSWER,
        )
        return {each.name for each in found.authorized_operations or ()}

    def topic_operations(self, name: str) -> Collection[str] | None:
        """Returns the operations on a topic that this client has the right to; None: there is no such topic."""
        return _operations(
            lambda: self._admin.ask(
                f"look at topic {name!r}",
                lambda client, left: client.describe_topics(
                    TopicCollection([name]), include_authorized_operations=True, request_timeout=left
                )[name],
                _ANSWER,
            )
        )

    def group_operations(self, name: str) -> Collection[str] | None:
        """Returns the operations on a group that this client has the right to; None: there is no such group yet."""
        return _operations(
            lambda: self._admin.ask(
                f"look at group {name!r}",
                lambda client, left: client.describe_consumer_groups(
                    [name], include_authorized_operations=True, request_timeout=left
                )[name],
                _ANSWER,
            )
        )

    def metadata_limit(self) -> int | None:
        """Returns the least `offset.metadata.max.bytes` of the brokers that show theirs; None: no broker does."""
        return self._admin.metadata_limit()

    def transact(self, transactional_id: str, topic: str | None) -> float | None:
        """Begins and aborts a transaction; returns the seconds by which the broker's clock is ahead of this one's.

        For that a record goes into a topic whose records brokers date, and is aborted; None: there is no `topic`.
        """
        topics = () if topic is None else (topic,)
        doing = Doing("a transaction", id_of(transactional_id), *on_topics("WRITE", *topics))
        handles = self._backend.handles
        producer = handles.producer(
            {}, {"transactional.id": transactional_id, "transaction.timeout.ms": 10_000}
        )
        dated: list[tuple[float, float]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                dated.append((message.timestamp()[1] / 1000, time.time()))

        try:
            handles.init_transactions(producer, _TRANSACTION)
            producer.begin_transaction()
            sent = time.time()
            if topic is not None:
                producer.produce(topic, b"", on_delivery=note)
                producer.flush(_ANSWER)
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(_TRANSACTION)
        except KafkaException as failure:
            raise translate(failure, doing) from None
        finally:
            handles.release(producer)
        if not dated:
            return None
        stamp, answered = dated[0]
        # It was dated somewhere between: only what lies outside is certain.
        return stamp - answered if stamp > answered else min(stamp - sent, 0.0)


def _operations(ask: Callable[[], TopicDescription | ConsumerGroupDescription]) -> Collection[str] | None:
    """Returns the operations that an answer allows; None: there is no such thing."""
    try:
        found = ask()
    except NotFound:
        return None
    except PermissionDenied:
        return ()
    return {each.name for each in found.authorized_operations or ()}
