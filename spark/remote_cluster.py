"""Asks the cluster what `cluster.py` asks, but over Spark Connect: with librdkafka in this process, without Java.

Rules
1. This process must reach Kafka itself, at the address that the server's Spark uses.
2. Settings of the connection apply here as well (`security.`, `sasl.`, `ssl.`, `client.`); settings for reading and
   writing apply only on the server. A setting that librdkafka doesn't know is refused by name. User and password are
   taken from `sasl.jaas.config`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_pubsub.errors import BrokerUnavailable, FailedPrecondition, NotFound, PermissionDenied
from kafka_pubsub.model import Committed, TopicPartition

from .cluster import Cluster, Listed, Spot
from .connection import Connection
from .spark_session import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["as_java_writes_it", "client_settings", "cluster_of"]

#: Seconds for one request.
_PATIENCE = 20.0
_OF_A_CONNECTION = ("security.", "sasl.", "ssl.", "client.")
_JAAS = "sasl.jaas.config"
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "GROUP_ID_NOT_FOUND", "TOPIC_EXCEPTION")


def cluster_of(spark: SparkSession, connection: Connection) -> Cluster:
    """Makes a client that asks the cluster, as a context manager that closes it."""
    return _RemoteCluster(connection) if is_remote(spark) else Cluster(spark, connection)


def as_java_writes_it(topic_id: str) -> str:
    """Returns a topic's id with the two other characters that Kafka's own client has for + and /."""
    return topic_id.replace("+", "-").replace("/", "_")


def client_settings(connection: Connection) -> dict[str, str]:
    """Returns the connection's settings as librdkafka takes them."""
    told = {name: value for name, value in connection.config.items() if name.startswith(_OF_A_CONNECTION)} | {
        "bootstrap.servers": connection.bootstrap
    }
    jaas = told.pop(_JAAS, "")
    for name in ("username", "password"):
        if found := re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas):
            told[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", found[1])
    if jaas and "sasl.username" not in told:
        raise FailedPrecondition(
            f"config {_JAAS}: over Spark Connect this process asks Kafka itself, and can use a username and password "
            "only; run the job with spark-submit"
        )
    if told.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in told:
        del told["ssl.truststore.type"]
        told["ssl.ca.location"] = told.pop("ssl.truststore.location")
    return told


class _RemoteCluster(Cluster):
    """One admin client of librdkafka."""

    def __init__(self, connection: Connection) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._connection = connection
        try:
            # Errors are raised, so librdkafka must not print lines about them as well.
            self._admin = AdminClient({**client_settings(connection), "log_level": 0})
        except KafkaException as error:
            raise FailedPrecondition(
                f"over Spark Connect this process asks Kafka itself, by librdkafka: {error.args[0].str()}; run the job "
                "with spark-submit, or give settings that both know"
            ) from error

    def __exit__(self, *_: object) -> None:
        """Does nothing: an admin client of librdkafka ends when it isn't used any more."""

    def topics(self) -> set[str]:
        """Returns the names of all topics that this client may see."""
        with self._explained("topics"):
            return set(self._admin.list_topics(timeout=_PATIENCE).topics)

    def identity(self) -> str:
        """Returns the cluster's id."""
        with self._explained("the cluster"):
            return str(self._admin.describe_cluster(request_timeout=_PATIENCE).result().cluster_id)

    def partitions(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions."""
        return [found.id for found in self._describe([topic])[topic].partitions]

    def topic_id(self, topic: str) -> str:
        """Returns a topic's id, which changes when the topic is deleted and made again."""
        return as_java_writes_it(str(self._describe([topic])[topic].topic_id))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the ids of those of the topics that exist."""
        there = self.topics()
        found = self._describe([topic for topic in topics if topic in there])
        return {topic: as_java_writes_it(str(each.topic_id)) for topic, each in found.items()}

    def _describe(self, topics: Sequence[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        found: dict[str, Any] = {}
        if topics:
            asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_PATIENCE)
            for topic, each in asked.items():
                with self._explained(f"topic {topic!r}"):
                    found[topic] = each.result()
        return found

    def _listed(
        self, topics: Iterable[str], spot: Spot, *, committed: bool = True
    ) -> dict[TopicPartition, Listed]:
        import confluent_kafka
        from confluent_kafka.admin import OffsetSpec

        named: dict[str, Callable[[], OffsetSpec]] = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "newest": OffsetSpec.max_timestamp,
        }
        spec = OffsetSpec.for_timestamp(spot) if isinstance(spot, int) else named[spot]()
        levels = confluent_kafka.IsolationLevel
        asked = {
            confluent_kafka.TopicPartition(topic, number): spec
            for topic in topics
            for number in self.partitions(topic)
        }
        if not asked:
            return {}
        with self._explained("offsets"):
            told = self._admin.list_offsets(
                asked,
                isolation_level=levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED,
                request_timeout=_PATIENCE,
            )
            found = {at: each.result() for at, each in told.items()}
        return {
            TopicPartition(at.topic, at.partition): Listed(each.offset, each.timestamp)
            for at, each in found.items()
        }

    def commits(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Returns a group's stored positions and their metadata."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        with self._explained(f"group {group!r}"):
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=_PATIENCE
            )
            found = asked[group].result().topic_partitions or ()
        return {
            TopicPartition(each.topic, each.partition): Committed(each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0
        }

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            cause = error.args[0]
            text = f"{what} on {self._connection.bootstrap}: {cause.str()}"
            if cause.name() in _UNKNOWN:
                raise NotFound(text) from None
            if "AUTH" in cause.name():
                raise PermissionDenied(text) from None
            raise BrokerUnavailable(
                f"{text} (asked by this process, not by the Spark Connect server)"
            ) from None
