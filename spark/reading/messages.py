"""Reads a topic as a DataFrame of messages, batch or stream: exactly the messages that a subscription delivers.

Rules
1. The isolation level is always `read_committed`: records of an aborted transaction aren't messages.
2. A topic is read with all its lanes, also one that comes while a stream runs: their names follow from the topic's.
3. If records are gone (retention, a topic made again), a query that should have read them fails, and the error says
   which; with `lost="skip"` it goes on without them.
4. A stream that runs reads new partitions, and new topics that fit a pattern, from their beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument, NotFound, PermissionDenied
from kafka_pubsub.lane_names import LANE_INFIX
from kafka_pubsub.model import TopicPartition

from ..base.connection import Connection, connection_of
from ..base.spark_session import check_kafka, first_line, is_remote
from .rows import may_be_retry, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Offsets",
    "Topics",
    "as_messages",
    "by_topic",
    "check_topics",
    "may_hold_retries",
    "messages",
    "raw_records",
    "source_options",
]

#: A topic, several topics, or a pattern that the whole name of a topic must match.
Topics = str | Sequence[str] | re.Pattern[str]
#: Topic -> partition -> offset; partitions that aren't named begin at their earliest offset.
Offsets = Mapping[str, Mapping[int, int]]
#: Precedes a pattern: it excludes the catalog, and retry topics, whose messages lie in their home topic as well.
_OTHERS = r"(?!_kafka_pubsub\.|.+\.sub\..+\.retry$)"
#: Follows a topic's name or pattern: the topic itself, and its lanes.
_LANES = f"({re.escape(LANE_INFIX)}[pt][0-9])?"
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}
#: Options of Spark's source that this package sets, in small letters as Spark compares them.
_OURS = {
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "endingoffsets",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
    "includeheaders",
    "failondataloss",
}
_MOST = "maxOffsetsPerTrigger"
#: What Spark's source takes these offsets for.
_EARLIEST, _LATEST = -2, -1
#: A batch ends at fixed offsets, and after a transaction's marker it would wait 500 ms for more records. After each
#: poll Spark asks for the partition's beginning and end, so a poll should take all that one fetch brings (1 MB).
_OF_A_CONSUMER = {"kafka.fetch.max.wait.ms": "50", "kafka.max.poll.records": "10000"}


def messages(
    spark: SparkSession,
    topic: Topics,
    *,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    stream: bool = False,
    starting: str | datetime | Offsets = "earliest",
    ending: str | datetime | Offsets = "latest",
    max_per_batch: int | None = None,
    lost: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Reads topics as messages, one row for each; the columns are `reading.rows.COLUMNS`.

    `topic` is a name, several names, or a compiled pattern that a topic's whole name must match. Each topic is read
    with its lanes; `topic` in a row is the Kafka topic of the lane. A pattern leaves out kafka_pubsub's own topics (the
    catalog, retry topics); read those by name. `bootstrap` is Kafka's address (default:
    KAFKA_PUBSUB_BOOTSTRAP), `config` are settings of the Java client (default: none). `stream=True` makes a stream
    (default: a batch). `starting` is "earliest" (default) or "latest", and `ending`, which isn't included, is "latest"
    (default). Both may also be a time, which is compared with the records' timestamps, or offsets. A stream has no
    `ending`, and begins at `starting` only while its checkpoint is new. `max_per_batch` is how many messages a batch of
    a stream has at most (default: all). `lost` says whether messages that are gone fail the query ("fail", default) or
    are skipped ("skip"). `options` are more options of Spark's Kafka source, e.g. minPartitions or
    kafka.max.poll.records (default: none); options that an argument of this function sets are refused.

    Example:
        messages(spark, "orders", bootstrap="localhost:9092").select("ordering_key", "attributes").show()
    """
    records = raw_records(
        spark,
        topic,
        connection_of(bootstrap, config),
        stream=stream,
        starting=starting,
        ending=ending,
        max_per_batch=max_per_batch,
        lost=lost,
        options=options,
    )
    return records.transform(as_messages, retry_topics=may_hold_retries(topic))


def as_messages(records: DataFrame, *, retry_topics: bool = True) -> DataFrame:
    """Turns the records of Spark's source `kafka` into messages: the rows and columns that `messages` returns.

    The source must have been loaded with `source_options`. `retry_topics=False` says that no record lies in a retry
    topic, which makes the plan half as large (default: some may).

    Example:
        source = spark.readStream.format("kafka").options(**source_options("orders", bootstrap="localhost:9092"))
        source.load().transform(as_messages).groupBy("ordering_key").count()
    """
    if "headers" not in records.columns:
        raise InvalidArgument(
            "as_messages: the records have no column headers, so they aren't messages: load them with "
            'spark.read.format("kafka").options(**source_options(TOPIC))'
        )
    return rows(records, retry_topics=retry_topics)


def source_options(
    topic: Topics,
    *,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    starting: str | datetime | Offsets = "earliest",
    ending: str | datetime | Offsets = "latest",
    max_per_batch: int | None = None,
    lost: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the options with which Spark's source `kafka` reads a topic as `messages` does, for `as_messages`.

    The arguments are those of `messages`. The options suit a batch, and without `ending` a stream. Kafka isn't asked
    for anything here: offsets must be given for all partitions of a topic and of its lanes, and a topic that doesn't
    exist is named by Spark, after a minute.

    Example:
        source = spark.read.format("kafka").options(**source_options("orders", bootstrap="localhost:9092"))
        orders = source.load().transform(as_messages)
    """
    _check_times(starting, ending)
    reach = {**_subscription(topic), **_beginning(starting), **_end(ending)}
    return _options(connection_of(bootstrap, config), reach, max_per_batch, lost, options)


def may_hold_retries(topic: Topics) -> bool:
    """Returns whether a retry topic may be among these topics."""
    if isinstance(topic, re.Pattern):
        return False
    return any(map(may_be_retry, [topic] if isinstance(topic, str) else topic))


def raw_records(
    spark: SparkSession,
    topic: Topics,
    connection: Connection,
    *,
    stream: bool = False,
    starting: str | datetime | Offsets = "earliest",
    ending: str | datetime | Offsets = "latest",
    max_per_batch: int | None = None,
    lost: Literal["fail", "skip"] = "fail",
    options: Mapping[str, str] | None = None,
    only: bool = False,
) -> DataFrame:
    """Reads records as Spark's own source gives them, with headers.

    The arguments are those of `messages`, and `only`: with `only=True` a batch whose `starting` and `ending` are
    offsets reads only the partitions that `ending` names (default: all partitions).
    """
    check_kafka(spark)
    if stream and ending != "latest":
        raise InvalidArgument("ending: a stream has no end; leave it out, or read a batch")
    _check_times(starting, ending)
    if only:
        reach = _offsets(starting, ending)
    else:
        first = _filled(spark, topic, connection, starting, _EARLIEST)
        last = _filled(spark, topic, connection, ending, _LATEST)
        reach = {**_subscription(topic), **_beginning(first), **_end(last)}
    told = _options(connection, reach, max_per_batch, lost, options)
    check_topics(spark, topic, connection)
    return (spark.readStream if stream else spark.read).format("kafka").options(**told).load()


def _options(
    connection: Connection,
    reach: Mapping[str, str],
    max_per_batch: int | None,
    lost: str,
    options: Mapping[str, str] | None,
) -> dict[str, str]:
    """Returns the options of Spark's source; `reach` are those that say what is read."""
    if lost not in ("fail", "skip"):
        raise InvalidArgument(f"lost must be 'fail' or 'skip', not {lost!r}")
    theirs = _theirs(options or {}, max_per_batch)
    return {
        **_OF_A_CONSUMER,
        **({} if max_per_batch is None else {_MOST: str(max_per_batch)}),
        **_with_settings(connection, theirs).spark_options(),
        **theirs,
        **reach,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": str(lost == "fail").lower(),
    }


def _theirs(options: Mapping[str, str], max_per_batch: int | None) -> dict[str, str]:
    """Returns the user's options; raises `InvalidArgument` for an option that this package sets."""
    for name in options:
        if name.lower() in _OURS:
            raise InvalidArgument(
                f"options {name}: this package sets it; use the argument for it (topic, starting, ending, lost)"
            )
        if name.lower() == _MOST.lower() and max_per_batch is not None:
            raise InvalidArgument(f"options {name}: max_per_batch says the same; give one of them")
    return dict(options)


def _with_settings(connection: Connection, theirs: dict[str, str]) -> Connection:
    """Returns the connection with the options for the Java client added, and removes them from `theirs`."""
    names = [name for name in theirs if name.lower().startswith("kafka.")]
    settings = {name: theirs.pop(name) for name in names}
    return connection_of(connection.bootstrap, {**connection.config, **settings})


def _subscription(topic: Topics) -> dict[str, str]:
    if isinstance(topic, re.Pattern):
        # Spark searches the pattern anywhere in a name, so the pattern is anchored at both ends.
        return {"subscribePattern": f"^{_OTHERS}{_in_java(topic)}{_LANES}$"}
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names or not all(names):
        raise InvalidArgument("topic: name at least one topic, or give a pattern")
    return {"subscribePattern": f"^({'|'.join(map(re.escape, names))}){_LANES}$"}


def _in_java(pattern: re.Pattern[str]) -> str:
    """Returns the pattern in Java's syntax, in which the flags are a part of the pattern."""
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    # The newline ends a comment at the end of a verbose pattern.
    return f"(?{flags}:{pattern.pattern}{chr(10) if 'x' in flags else ''})"


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """Groups offsets by topic, as `starting` and `ending` take them."""
    found: dict[str, dict[int, int]] = {}
    for at, offset in offsets.items():
        found.setdefault(at.topic, {})[at.partition] = offset
    return found


def check_topics(spark: SparkSession, topic: Topics, connection: Connection) -> None:
    """Raises `NotFound` with the names of the topics that don't exist; `PermissionDenied` if one is hidden."""
    # Spark itself would try for a minute, and its error would only mention metadata.
    if isinstance(topic, re.Pattern):
        return
    wanted = [topic] if isinstance(topic, str) else list(topic)
    if is_remote(spark):
        _check_by_reading(spark, wanted, connection)
        return
    from ..base.cluster import Cluster

    with Cluster(spark, connection) as cluster:
        cluster.check(wanted)


def _check_by_reading(spark: SparkSession, wanted: Sequence[str], connection: Connection) -> None:
    """Checks topics without the Java client: lets Spark read one of their records."""
    told = {"subscribe": ",".join(wanted), "startingOffsets": "earliest", "endingOffsets": "latest"}
    try:
        spark.read.format("kafka").options(**connection.spark_options(), **told).load().limit(1).collect()
    except Exception as error:
        if "UnknownTopicOrPartitionException" not in str(error):
            kind = PermissionDenied if "AuthorizationException" in str(error) else BrokerUnavailable
            raise kind(f"topics on {connection.bootstrap}: {first_line(error)}") from error
        raise NotFound(
            f"topic {' or '.join(map(repr, wanted))} doesn't exist on {connection.bootstrap}"
        ) from error


def _beginning(starting: str | datetime | Offsets) -> dict[str, str]:
    if isinstance(starting, datetime):
        return {
            "startingTimestamp": _milliseconds(starting, "starting"),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if isinstance(starting, Mapping):
        return {"startingOffsets": json.dumps(starting)}
    if starting not in ("earliest", "latest"):
        raise InvalidArgument(f"starting must be 'earliest', 'latest', a time or offsets, not {starting!r}")
    return {"startingOffsets": starting}


def _check_times(starting: object, ending: object) -> None:
    """Raises `InvalidArgument` if the end lies before the beginning, where Spark would find nothing."""
    if isinstance(starting, datetime) and isinstance(ending, datetime):
        first, last = _milliseconds(starting, "starting"), _milliseconds(ending, "ending")
        if int(first) > int(last):
            raise InvalidArgument(f"starting ({starting}) is later than ending ({ending}): exchange them")


def _end(ending: str | datetime | Offsets) -> dict[str, str]:
    if isinstance(ending, datetime):
        return {"endingTimestamp": _milliseconds(ending, "ending")}
    if isinstance(ending, Mapping):
        return {"endingOffsets": json.dumps(ending)}
    if ending != "latest":
        raise InvalidArgument(f"ending must be 'latest', a time or offsets, not {ending!r}")
    # A stream takes no such option, and a batch ends there without it.
    return {}


def _milliseconds(time: datetime, name: str) -> str:
    if time.tzinfo is None:
        raise InvalidArgument(f"{name}: give the time with its zone, e.g. datetime.now(UTC)")
    return str(int(time.timestamp() * 1000))


def _offsets(starting: str | datetime | Offsets, ending: str | datetime | Offsets) -> dict[str, str]:
    if not isinstance(starting, Mapping) or not isinstance(ending, Mapping):
        raise InvalidArgument("starting, ending: give the offsets of the partitions that are read")
    firsts = {
        topic: {str(number): starting.get(topic, {}).get(number, _EARLIEST) for number in ends}
        for topic, ends in ending.items()
    }
    return {
        "assign": json.dumps({topic: sorted(ends) for topic, ends in ending.items()}),
        "startingOffsets": json.dumps(firsts),
        "endingOffsets": json.dumps(ending),
    }


def _filled(
    spark: SparkSession, topic: Topics, connection: Connection, told: str | datetime | Offsets, other: int
) -> str | datetime | Offsets:
    """Adds the partitions that offsets don't name, because Spark needs all; returns anything else as it is.

    `other` is their offset: the earliest for `starting`, the latest for `ending`. Raises `InvalidArgument` for a topic
    that isn't read, and for a partition that isn't there.
    """
    # Over Spark Connect the caller must name all partitions; otherwise Spark's error says which are missing.
    if not isinstance(told, Mapping) or is_remote(spark):
        return told
    from ..base.cluster import Cluster

    named = [] if isinstance(topic, re.Pattern) else [topic] if isinstance(topic, str) else topic
    argument = "starting" if other == _EARLIEST else "ending"
    with Cluster(spark, connection) as cluster:
        read = cluster.with_lanes(named or told)
        if not read:
            # `check_topics` says that the topic doesn't exist.
            return told
        if others := [name for name in told if name not in read]:
            raise InvalidArgument(
                f"{argument}: topic {others[0]!r} isn't read; offsets are for {', '.join(read)}"
            )
        partitions = {name: cluster.partitions(name) for name in read}
    for name, offsets in told.items():
        if wrong := sorted(set(offsets) - set(partitions[name])):
            raise InvalidArgument(
                f"{argument}: {name} has no partition {wrong[0]}; it has {len(partitions[name])}, from 0 on"
            )
    return {
        name: {number: told.get(name, {}).get(number, other) for number in numbers}
        for name, numbers in partitions.items()
    }
