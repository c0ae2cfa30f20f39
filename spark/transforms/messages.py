"""A topic as a DataFrame of messages, batch or stream: exactly the set that a subscription delivers.

Rules
1. `read_committed`, always: what an aborted transaction left is no message.
2. Records that are gone (retention, a topic made again) fail a query that should have read them, and the error
   says which; `lost="skip"` goes on without.
3. New partitions, and new topics that fit a pattern, are read from their beginning by a stream that runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument, NotFound

from ..connection import Connection, connection_of
from ..spark_session import check_kafka, first_line, is_remote
from .rows import may_be_retry, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Topics", "check_topics", "may_hold_retries", "messages", "raw_records"]

#: A topic, several, or a pattern that their whole name must match.
Topics = str | Sequence[str] | re.Pattern[str]
#: Topic -> partition -> offset; partitions that aren't named begin at the earliest.
Offsets = Mapping[str, Mapping[int, int]]
#: In front of a pattern: not the catalog, nor a retry topic, whose messages lie in their home topic as well.
_OTHERS = r"(?!_kafka_pubsub\.|.+\.sub\..+\.retry$)"
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
_MOST = "maxoffsetspertrigger"
#: A batch reads no further than its ends, and behind a transaction's marker it would wait 500 ms for more. After each
#: poll Spark asks for the partition's beginning and end, so a poll takes as much as one fetch brings (1 MB).
_OF_A_BATCH = {"kafka.fetch.max.wait.ms": "50", "kafka.max.poll.records": "10000"}


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
    """One row a message; its columns are `transforms.rows.COLUMNS`.

    `topic` is a name, several, or a compiled pattern that a topic's whole name must match; a pattern leaves out topics
    of kafka_pubsub's own (the catalog, retry topics), which are read by name. `bootstrap` is Kafka's address (default:
    KAFKA_PUBSUB_BOOTSTRAP), `config` are settings of the Java client. `stream`: a stream (default: a batch).
    `starting` (default "earliest") is "earliest" or "latest", `ending` (default, not included) "latest"; both may be a
    time by the records' timestamps, or offsets. A stream has no `ending`, and begins at `starting` only while its
    checkpoint is new. `max_per_batch`: messages in a batch of a stream (default: all). `lost`: whether messages that
    are gone fail the query (default) or are skipped. `options`: more options of Spark's Kafka source, e.g.
    minPartitions or kafka.max.poll.records (default: none); those that an argument of this function sets are refused.

    Example:
        messages(spark, "orders", bootstrap="localhost:9092").select("ordering_key", "attributes").show()
    """
    return rows(
        raw_records(
            spark,
            topic,
            connection_of(bootstrap, config),
            stream=stream,
            starting=starting,
            ending=ending,
            max_per_batch=max_per_batch,
            lost=lost,
            options=options,
        ),
        retry_topics=may_hold_retries(topic),
    )


def may_hold_retries(topic: Topics) -> bool:
    """Whether a retry topic may be among them."""
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
    """The records as Spark's own source gives them, headers included.

    The arguments are those of `messages`. `only`: of a batch whose `starting` and `ending` are offsets, nothing but the
    partitions that `ending` names (default: all partitions).
    """
    check_kafka(spark)
    if lost not in ("fail", "skip"):
        raise InvalidArgument(f"lost must be 'fail' or 'skip', not {lost!r}")
    if stream and ending != "latest":
        raise InvalidArgument("ending: a stream has no end; leave it out, or read a batch")
    theirs = _theirs(options or {}, max_per_batch)
    connection = _with_settings(connection, theirs)
    reach = (
        _offsets(starting, ending) if only else {**_subscription(topic), **_from(spark, connection, starting)}
    )
    told = {
        **({} if stream else _OF_A_BATCH),
        **theirs,
        **connection.spark_options(),
        **reach,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": str(lost == "fail").lower(),
    }
    check_topics(spark, topic, connection)
    if stream:
        if max_per_batch is not None:
            told["maxOffsetsPerTrigger"] = str(max_per_batch)
        return spark.readStream.format("kafka").options(**told).load()
    if only:
        return spark.read.format("kafka").options(**told).load()
    if isinstance(ending, datetime):
        told["endingTimestamp"] = _milliseconds(ending, "ending")
    elif isinstance(ending, str):
        if ending != "latest":
            raise InvalidArgument(f"ending must be 'latest', a time or offsets, not {ending!r}")
        told["endingOffsets"] = ending
    else:
        told["endingOffsets"] = json.dumps(_filled(spark, connection, ending, -1))
    return spark.read.format("kafka").options(**told).load()


def _theirs(options: Mapping[str, str], max_per_batch: int | None) -> dict[str, str]:
    """The options that a user may set; `InvalidArgument` names one that this package sets."""
    for name in options:
        if name.lower() in _OURS:
            raise InvalidArgument(
                f"options {name}: this package sets it; use the argument for it (topic, starting, ending, lost)"
            )
        if name.lower() == _MOST and max_per_batch is not None:
            raise InvalidArgument(f"options {name}: max_per_batch says the same; give one of them")
    return dict(options)


def _with_settings(connection: Connection, theirs: dict[str, str]) -> Connection:
    """The place with those of the options that are for the Java client, which are taken out of them."""
    names = [name for name in theirs if name.lower().startswith("kafka.")]
    settings = {name: theirs.pop(name) for name in names}
    return connection_of(connection.bootstrap, {**connection.config, **settings})


def _subscription(topic: Topics) -> dict[str, str]:
    if isinstance(topic, re.Pattern):
        # Spark takes what fits anywhere in a name, so both ends are said.
        return {"subscribePattern": f"^{_OTHERS}{_in_java(topic)}$"}
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names or not all(names):
        raise InvalidArgument("topic: name at least one topic, or give a pattern")
    return {"subscribe": ",".join(names)}


def _in_java(pattern: re.Pattern[str]) -> str:
    """The pattern with its flags, which Java takes inside of it."""
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    # A line's end closes a comment of a verbose pattern.
    return f"(?{flags}:{pattern.pattern}{chr(10) if 'x' in flags else ''})"


def check_topics(spark: SparkSession, topic: Topics, connection: Connection) -> None:
    """`NotFound` names what doesn't exist."""
    # Spark itself would try for a minute, and then speak of metadata.
    if isinstance(topic, re.Pattern):
        return
    wanted = [topic] if isinstance(topic, str) else list(topic)
    if is_remote(spark):
        _check_by_reading(spark, wanted, connection)
        return
    from ..cluster import Cluster

    with Cluster(spark, connection) as cluster:
        there = cluster.topics()
    missing = [name for name in wanted if name not in there]
    if missing:
        raise NotFound(f"topic {', '.join(map(repr, missing))} doesn't exist on {connection.bootstrap}")


def _check_by_reading(spark: SparkSession, wanted: Sequence[str], connection: Connection) -> None:
    """Has Spark look for the topics and read one record of them: what there is without the Java client."""
    told = {"subscribe": ",".join(wanted), "startingOffsets": "earliest", "endingOffsets": "latest"}
    try:
        spark.read.format("kafka").options(**connection.spark_options(), **told).load().limit(1).collect()
    except Exception as error:
        if "UnknownTopicOrPartitionException" not in str(error):
            raise BrokerUnavailable(f"topics on {connection.bootstrap}: {first_line(error)}") from error
        raise NotFound(
            f"topic {' or '.join(map(repr, wanted))} doesn't exist on {connection.bootstrap}"
        ) from error


def _from(spark: SparkSession, connection: Connection, starting: str | datetime | Offsets) -> dict[str, str]:
    if isinstance(starting, datetime):
        return {
            "startingTimestamp": _milliseconds(starting, "starting"),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if isinstance(starting, str):
        if starting not in ("earliest", "latest"):
            raise InvalidArgument(
                f"starting must be 'earliest', 'latest', a time or offsets, not {starting!r}"
            )
        return {"startingOffsets": starting}
    return {"startingOffsets": json.dumps(_filled(spark, connection, starting, -2))}


def _milliseconds(time: datetime, name: str) -> str:
    if time.tzinfo is None:
        raise InvalidArgument(f"{name}: give the time with its zone, e.g. datetime.now(UTC)")
    return str(int(time.timestamp() * 1000))


def _offsets(starting: str | datetime | Offsets, ending: str | datetime | Offsets) -> dict[str, str]:
    if not isinstance(starting, Mapping) or not isinstance(ending, Mapping):
        raise InvalidArgument("starting, ending: give the offsets of the partitions that are read")
    firsts = {
        topic: {str(number): starting.get(topic, {}).get(number, 0) for number in ends}
        for topic, ends in ending.items()
    }
    return {
        "assign": json.dumps({topic: sorted(ends) for topic, ends in ending.items()}),
        "startingOffsets": json.dumps(firsts),
        "endingOffsets": json.dumps(ending),
    }


def _filled(
    spark: SparkSession, connection: Connection, offsets: Offsets, other: int
) -> dict[str, dict[str, int]]:
    """Spark wants every partition named; -2 is its earliest, -1 its latest."""
    # The caller names them all, or Spark says which are missing.
    if is_remote(spark):
        return {topic: {str(number): at for number, at in told.items()} for topic, told in offsets.items()}
    from ..cluster import Cluster

    with Cluster(spark, connection) as cluster:
        return {
            topic: {str(number): told.get(number, other) for number in cluster.partitions(topic)}
            for topic, told in offsets.items()
        }
