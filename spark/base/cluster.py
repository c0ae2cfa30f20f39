"""Asks the cluster for topics, ends of logs and commits of groups, with the Java client that comes with Spark.

Rules
1. The client has the settings of Spark's source, so a driver that can read a topic can also ask for this, without
   librdkafka.
2. Java's exceptions become errors of kafka_pubsub, with the name of what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, NotFound, PermissionDenied, PubSubError
from kafka_pubsub.lane_names import every_name
from kafka_pubsub.model import Committed, TopicPartition

from .connection import Connection
from .spark_session import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Cluster", "Listed", "Spot"]

#: Which record of a partition is asked for. A number (ms since 1970) asks for the first record that isn't older.
Spot = Literal["earliest", "latest", "newest"] | int

#: Milliseconds for one request; if a broker doesn't answer in that time, the request fails.
_PATIENCE_MS = "20000"
#: Seconds to wait for a transaction of another program; brokers end a transaction of kafka_pubsub earlier.
UNDECIDED_S = 120.0


class Listed(NamedTuple):
    """The offset and time of a record that was asked for; -1 if there is no such record, or it has no time."""

    offset: int
    timestamp: int


class Cluster:
    """One admin client, as a context manager that closes it."""

    def __init__(self, spark: SparkSession, connection: Connection) -> None:
        self._jvm = jvm(spark)
        self._connection = connection
        settings = self._jvm.java.util.Properties()
        defaults = {"default.api.timeout.ms": _PATIENCE_MS, "request.timeout.ms": "10000"}
        for name, value in {**defaults, **connection.client_options()}.items():
            settings.setProperty(name, value)
        with self._explained("the cluster"):
            self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def topics(self) -> set[str]:
        """Returns the names of all topics that this client may see."""
        options = self._jvm.org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(True)
        with self._explained("topics"):
            return set(self._client.listTopics(options).names().get())

    def check(self, topics: Iterable[str]) -> None:
        """Raises `NotFound` with the names of the topics that don't exist; `PermissionDenied` if one is hidden."""
        there = self.topics()
        missing = [name for name in topics if name not in there]
        for name in missing:
            with suppress(NotFound):
                self._describe(name)
        if missing:
            raise NotFound(
                f"topic {', '.join(map(repr, missing))} doesn't exist on {self._connection.bootstrap}"
            )

    def with_lanes(self, topics: Iterable[str]) -> list[str]:
        """Returns the Kafka topics of these topics: their own, and those of their lanes."""
        return list(self.topic_ids(name for topic in topics for name in every_name(topic)))

    def partitions(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions."""
        return [found.partition() for found in self._describe(topic).partitions()]

    def topic_id(self, topic: str) -> str:
        """Returns a topic's id, which changes when the topic is deleted and made again."""
        return str(self._describe(topic).topicId().toString())

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the ids of those of the topics that exist."""
        options = self._jvm.org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(True)
        with self._explained("topics"):
            found = self._client.listTopics(options).namesToListings().get()
            return {
                topic: str(found.get(topic).topicId().toString())
                for topic in topics
                if found.containsKey(topic)
            }

    def _describe(self, topic: str) -> Any:
        names = self._jvm.java.util.ArrayList()
        names.add(topic)
        with self._explained(f"topic {topic!r}"):
            return self._client.describeTopics(names).allTopicNames().get().get(topic)

    def beginnings(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition that is still there."""
        return self._offsets(topics, "earliest")

    def ends(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Returns the last stable offset of each partition, which is the end for a `read_committed` reader."""
        return self._offsets(topics, "latest")

    def offsets_at(self, topics: Iterable[str], moment: int) -> dict[TopicPartition, int]:
        """Returns each partition's first offset whose record isn't older than `moment` (ms since 1970).

        A partition without such a record is left out.
        """
        return {at: offset for at, offset in self._offsets(topics, moment).items() if offset >= 0}

    def decided_ends(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Returns what `ends` does, but waits until the ends are beyond everything that was written before this call.

        Raises `DeadlineExceeded` if a transaction stays open for `UNDECIDED_S` seconds.
        """
        names = list(topics)
        written = self._offsets(names, "latest", committed=False)
        until = time.monotonic() + UNDECIDED_S
        ends = self.ends(names)
        while open_ones := [at for at, end in written.items() if ends.get(at, end) < end]:
            if time.monotonic() > until:
                raise DeadlineExceeded(
                    f"a transaction in {open_ones[0]} has been open for {UNDECIDED_S:.0f} s, and what lies behind it "
                    "can't be read; try again when it has ended, or end it with kafka-transactions.sh abort"
                )
            time.sleep(0.05)
            ends = self.ends(names)
        return ends

    def identity(self) -> str:
        """Returns the cluster's id."""
        with self._explained("the cluster"):
            return str(self._client.describeCluster().clusterId().get())

    def times(self, topics: Iterable[str]) -> tuple[int, int] | None:
        """Returns the time of the oldest first record of a partition, and the latest time of all; None without records.

        Milliseconds since 1970. A record without a time doesn't count.
        """
        spots: tuple[Spot, ...] = (0, "newest")
        names = list(topics)
        told = [
            [found.timestamp for found in self._listed(names, spot).values() if found.timestamp >= 0]
            for spot in spots
        ]
        return (min(told[0]), max(told[1])) if all(told) else None

    def _offsets(
        self, topics: Iterable[str], spot: Spot, *, committed: bool = True
    ) -> dict[TopicPartition, int]:
        return {at: found.offset for at, found in self._listed(topics, spot, committed=committed).items()}

    def _listed(
        self, topics: Iterable[str], spot: Spot, *, committed: bool = True
    ) -> dict[TopicPartition, Listed]:
        kinds = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        named = {"earliest": kinds.earliest, "latest": kinds.latest, "newest": kinds.maxTimestamp}
        spec = kinds.forTimestamp(spot) if isinstance(spot, int) else named[spot]()
        asked = self._jvm.java.util.HashMap()
        for topic in topics:
            for number in self.partitions(topic):
                asked.put(self._jvm.org.apache.kafka.common.TopicPartition(topic, number), spec)
        levels = self._jvm.org.apache.kafka.common.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        with self._explained("offsets"):
            found = self._client.listOffsets(asked, options).all().get()
            return {
                _place(at): Listed(found.get(at).offset(), found.get(at).timestamp()) for at in asked.keySet()
            }

    def commits(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Returns a group's stored positions and their metadata."""
        with self._explained(f"group {group!r}"):
            found = self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            return {
                # librdkafka stores the metadata with the NUL at the end of a C text, and removes it when it reads.
                _place(at): Committed(found.get(at).offset(), (found.get(at).metadata() or "").rstrip("\0"))
                for at in found.keySet()
                if found.get(at) is not None
            }

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            raise _translated(error, what, self._connection) from None


def _place(java: Any) -> TopicPartition:
    return TopicPartition(java.topic(), java.partition())


def _translated(error: Any, what: str, connection: Connection) -> PubSubError:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    name = cause.getClass().getSimpleName()
    text = f"{what} on {connection.bootstrap}: {cause.getMessage() or name}"
    if name in ("UnknownTopicOrPartitionException", "InvalidTopicException", "GroupIdNotFoundException"):
        return NotFound(text)
    if name.endswith(("AuthorizationException", "AuthenticationException")):
        return PermissionDenied(
            f"{text}; `kafka-pubsub access spark --topic NAME` prints the rights of a job"
        )
    return BrokerUnavailable(text)
