"""Reads the delayed messages that wait, as a table.

Theory. A router moves messages while Spark reads. So commits are read before ends, as
`kafka_pubsub/delays/waiting.py` does it, and records are read at once and kept: the same rows come however often
the table is used.

Rules
1. A router deletes what it has handled. If it deletes records that were to be read, the messages in them are home or
   have hopped, and the tiers are read once more, from the first ends on. What hops and is deleted again during that
   second look waits for less time than both looks took.
2. Nothing is said of messages that come in after the ends were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_pubsub.delays.layout import GROUP, INGEST, tier_topic, tiers_of
from kafka_pubsub.delays.progress import IngestProgress, Progress, parse_ingest, parse_tier
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.model import Committed, TopicPartition

from ..base.cluster import Cluster
from ..base.connection import Connection, connection_of
from ..base.spark_session import check_kafka, is_remote
from .delays import OF_INGEST, PROGRESS, WAITING, delay_records, waiting_rows
from .messages import by_topic, raw_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["waiting"]

Offsets = Mapping[TopicPartition, int]


def waiting(
    spark: SparkSession,
    *,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Reads the delayed messages of all topics that wait at the time of this call, one row for each.

    Its columns: `message_id` (what `publish` gave), `topic` (where the message goes), `ordering_key`, `data`,
    `attributes`, `deliver_at` (when it is due; null: no broker has stamped it, so its delay hasn't begun), `tier` (it
    waits there for 2**tier seconds; null: it came in and is in no tier yet), and the record's `partition` and
    `offset` in that tier, or where it came in. The rows are those of `PubSub.delays.waiting()`. They are read by this
    call and kept by the executors, so they don't change; call it again to see what waits later. Over Spark Connect
    read the table `waiting` of `register_tables` instead.

    `bootstrap` is Kafka's address (default: KAFKA_PUBSUB_BOOTSTRAP), `config` are settings of the Java client (default:
    none). `options` are more options of Spark's Kafka source, e.g. minPartitions (default: none).

    Example:
        waiting(spark, bootstrap="localhost:9092").groupBy("topic", "tier").count().show()
    """
    if is_remote(spark):
        raise FailedPrecondition(
            "waiting: over Spark Connect read the same as a table: spark.read.format('kafka_pubsub')"
            ".option('table', 'waiting').option('kafka.bootstrap.servers', ADDRESS).load()"
        )
    check_kafka(spark)
    connection = connection_of(bootstrap, config)
    with Cluster(spark, connection) as cluster:
        topics = _find_topics(cluster)
        commits = cluster.commits(GROUP) if topics else {}
        first = cluster.beginnings(topics)
        progress = {at: _parse(at, commits.get(at), begin) for at, begin in first.items()}
        starts = {at: max(begin, progress[at].position) for at, begin in first.items()}
        ends = cluster.ends(topics)
        found = _read(spark, connection, starts, ends, options)
        if found is None:
            return spark.createDataFrame([], WAITING)
        if any(begin > starts[at] for at, begin in cluster.beginnings(topics).items()):
            tiers = [topic for topic in topics if topic != INGEST]
            more = _read(spark, connection, ends, cluster.ends(tiers), options)
            found = found if more is None else found.unionByName(more)
    return waiting_rows(found, spark.createDataFrame(_rows(progress), PROGRESS))


def _find_topics(cluster: Cluster) -> list[str]:
    """Returns the topics in which messages may wait; none if they weren't made yet."""
    there = cluster.topics()
    if INGEST not in there:
        return []
    tiers = tiers_of(there)
    if not tiers:
        raise FailedPrecondition(
            f"delayed delivery: topic {INGEST!r} is there, but tier topic {tier_topic(0)!r} is missing: start "
            "`kafka-pubsub service router`, which makes what is missing, or have it made"
        )
    return [INGEST, *map(tier_topic, range(tiers))]


def _parse(at: TopicPartition, found: Committed | None, begin: int) -> IngestProgress | Progress:
    offset, text = (begin, "") if found is None else (found.offset or 0, found.metadata)
    return parse_ingest(offset, text) if at.topic == INGEST else parse_tier(offset, text)


def _read(
    spark: SparkSession,
    connection: Connection,
    starts: Offsets,
    ends: Offsets,
    options: Mapping[str, str] | None,
) -> DataFrame | None:
    """Reads the records between these offsets, decoded, and keeps them; None: there are none."""
    used = [at for at, end in ends.items() if starts[at] < end]
    if not used:
        return None
    starting, ending = (by_topic({at: each[at] for at in used}) for each in (starts, ends))
    records = raw_records(
        spark,
        sorted(ending),
        connection,
        starting=starting,
        ending=ending,
        lost="skip",
        options=options,
        only=True,
    )
    return delay_records(records).localCheckpoint()


def _rows(progress: Mapping[TopicPartition, IngestProgress | Progress]) -> Iterable[tuple[int, ...]]:
    ingest = {at.partition: each for at, each in progress.items() if isinstance(each, IngestProgress)}
    for at, each in progress.items():
        if beside := ingest.get(at.partition):
            source = OF_INGEST if at.topic == INGEST else int(at.topic[-2:])
            yield source, at.partition, each.handled, *beside.mark, beside.time or 0
