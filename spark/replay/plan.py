"""Plans a replay as ranges of offsets, writes it portion by portion, and stores how far it has come.

Theory. Within a partition the order of offsets is the order of every key. So a plan has a range of offsets for each
partition, and a portion is the next piece of each range: no two portions read the same message. If a portion was
interrupted, the target holds the first messages of each key. The next start finds these by their ids, and writes only
the rest.

Rules
1. The plan is made once and stored: messages that are archived or dead-lettered later aren't in it.
2. The ends of the target are noted before a portion begins; a repeated portion searches the target from there on.
3. The plan has the ids of the topics that are read and of the target. If a topic was made again, the replay is refused;
   from an archive it goes on with the topic that it began with.
4. The state says what is replayed, under which name and where to; a start with other options is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark.sql import Observation
from pyspark.sql import functions as F

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.lane_names import every_name
from kafka_pubsub.model import TopicPartition

from ..archive.blocks import within
from ..base.cluster import Cluster
from ..base.connection import Connection
from ..base.files import Files
from ..base.spark_session import first_line
from ..reading.messages import by_topic, may_hold_retries, messages, raw_records
from ..reading.rows import rows
from ..run import ownership
from ..writing.outgoing import write_records
from .replayed import again, without

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..base.tables import Table

__all__ = ["ArchiveSource", "Plan", "Range", "Replay", "Source", "TopicSource", "looked_at", "planned"]

#: Seconds of writing in a portion if the rate is limited: short for a user who waits, long beside a Spark job's start.
PORTION_S = 5.0
#: How many offsets a portion has if the rate isn't limited.
PORTION = 1_000_000
_PLAN, _PROGRESS = "plan.json", "progress"


class Range(NamedTuple):
    """A partition of the topic or of one of its lanes, its first offset, and the offset after its last one."""

    at: TopicPartition
    first: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The offsets that are replayed, and how many of them a portion holds."""

    size: int
    ranges: Sequence[Range]
    #: The ids of the Kafka topics that are read.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def offsets(self) -> int:
        """How many offsets there are; some may hold no message, or one that `--where` leaves out."""
        return sum(each.end - each.first for each in self.ranges)

    def portions(self) -> Iterator[list[Range]]:
        """Yields the ranges in pieces: a portion takes the same number of offsets of each range that isn't finished."""
        left = [each for each in self.ranges if each.first < each.end]
        while left:
            most = max(1, self.size // len(left))
            yield [Range(at, first, min(end, first + most)) for at, first, end in left]
            left = [Range(at, first + most, end) for at, first, end in left if first + most < end]


class Source(Protocol):
    """The source of the messages. `ordered` says that each task reads whole partitions, in the order of offsets."""

    ordered: bool

    def ranges(self) -> list[Range]:
        """Returns the offsets that the source holds now."""

    def topic_ids(self) -> dict[str, str]:
        """Returns the ids of the Kafka topics that are read."""

    def hold_to(self, ids: Mapping[str, str]) -> None:
        """Reads from topics with these ids only; raises `FailedPrecondition` if one of them is gone."""

    def read(self, ranges: Sequence[Range]) -> DataFrame:
        """Reads the messages at these offsets, without those that `--where` leaves out."""


class TopicSource:
    """A topic as the source of a replay."""

    ordered = True

    def __init__(self, spark: SparkSession, connection: Connection, topic: str, where: str | None) -> None:
        self._spark, self._connection, self._topic, self._where = spark, connection, topic, where
        _filtered(messages(spark, topic, bootstrap=connection.bootstrap, config=connection.config), where)

    def ranges(self) -> list[Range]:
        """Returns the offsets of each partition of each lane from its beginning to its end."""
        with Cluster(self._spark, self._connection) as cluster:
            lanes = cluster.with_lanes([self._topic])
            ends = cluster.ends(lanes)
            return sorted(Range(at, first, ends[at]) for at, first in cluster.beginnings(lanes).items())

    def topic_ids(self) -> dict[str, str]:
        """Returns the ids of the topic and its lanes."""
        with Cluster(self._spark, self._connection) as cluster:
            return cluster.topic_ids(cluster.with_lanes([self._topic]))

    def hold_to(self, ids: Mapping[str, str]) -> None:
        """Raises `FailedPrecondition` if a topic was made again; its messages are gone."""
        _refuse_made_again(ids, self.topic_ids())

    def read(self, ranges: Sequence[Range]) -> DataFrame:
        """Reads the messages at these offsets, and no other partition."""
        records = raw_records(
            self._spark,
            self._topic,
            self._connection,
            starting=by_topic({each.at: each.first for each in ranges}),
            ending=by_topic({each.at: each.end for each in ranges}),
            only=True,
        )
        return _filtered(rows(records, retry_topics=may_hold_retries(self._topic)), self._where)


class ArchiveSource:
    """A topic's messages in an archive, as the source of a replay. The message at an offset there never changes.

    Of a topic that was made again it may hold two messages at one offset, so one of the two topics must be chosen.
    """

    ordered = False

    def __init__(self, table: Table, topic: str, where: str | None) -> None:
        self._found = _filtered(table.read().where(F.col("topic").isin(every_name(topic))), where)

    def ranges(self) -> list[Range]:
        """Returns the offsets of each partition from the first to the last message that `--where` chooses."""
        found = self._found.groupBy("topic", "partition").agg(
            F.min("offset").alias("first"), F.max("offset").alias("last")
        )
        return sorted(
            Range(TopicPartition(row.topic, row.partition), row["first"], row["last"] + 1)
            for row in found.collect()
        )

    def topic_ids(self) -> dict[str, str]:
        """Returns the ids of the topic and its lanes; `FailedPrecondition` if the archive has two of one name."""
        if "topic_id" not in self._found.columns:
            return {}
        ids = self._found.groupBy("topic").agg(F.array_sort(F.collect_set("topic_id")).alias("ids"))
        found = {row.topic: row.ids for row in ids.collect()}
        for topic, each in found.items():
            if len(each) > 1:
                raise FailedPrecondition(
                    f"the archive holds {len(each)} topics that were called {topic!r} one after the other: choose one "
                    f"with --where \"topic_id = '...'\" ({', '.join(each)}), and give each replay a --name"
                )
        return {topic: each[0] for topic, each in found.items() if each}

    def hold_to(self, ids: Mapping[str, str]) -> None:
        """Leaves out the messages of other topics that had the same name, which were archived later."""
        if "topic_id" in self._found.columns:
            self._found = self._found.where(F.coalesce("topic_id", F.lit("")).isin("", *ids.values()))

    def read(self, ranges: Sequence[Range]) -> DataFrame:
        """Reads the messages at these offsets. Delta skips files and parts of files by the two bounds of `near`."""
        if not ranges:
            return self._found.where(F.lit(False))
        least, most = min(each.first for each in ranges), max(each.end for each in ranges)
        near = self._found.where((F.col("offset") >= least) & (F.col("offset") < most))
        return within(near, {each.at: (each.first, each.end) for each in ranges})


def _refuse_made_again(known: Mapping[str, str], now: Mapping[str, str]) -> None:
    if again := [topic for topic, found in known.items() if now.get(topic) != found]:
        raise FailedPrecondition(
            f"topic {', '.join(map(repr, again))} is gone or was made again since this replay was planned, so its "
            "offsets belong to other messages: begin another replay, with another --state"
        )


def _filtered(source: DataFrame, where: str | None) -> DataFrame:
    """Returns the messages that a SQL expression chooses (default: all)."""
    if where is None:
        return source
    try:
        return source.where(where)
    except Exception as error:
        raise InvalidArgument(
            f"--where {where!r} isn't a condition over a message: {first_line(error)}"
        ) from error


def planned(source: Source, rate: float | None) -> Plan:
    """Makes the plan of a replay that begins now."""
    ids = source.topic_ids()
    return Plan(PORTION if rate is None else max(1, int(rate * PORTION_S)), source.ranges(), ids)


def looked_at(messages: DataFrame, most: int) -> tuple[int, list[Any]]:
    """Returns how many messages there are, and the first `most` of them; reads them once."""
    seen, found = _counting(messages)
    first = found.orderBy("partition", "offset").limit(most).collect()
    return _counted(seen), first


class Replay:
    """One replay, which an earlier start may have begun."""

    def __init__(
        self,
        name: str,
        target: str,
        connection: Connection,
        state: Files,
        about: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self._target = target
        self._connection = connection
        self._state = state
        self._note = note
        self._notes = 0
        about = {"name": name, "to": target, **about}
        ownership.claim(state, "replay", about, begun=_PROGRESS)

    def go(
        self,
        source: Source,
        spark: SparkSession,
        rate: float | None,
        aside: Callable[[DataFrame, int], DataFrame] | None = None,
    ) -> tuple[int, int]:
        """Writes what isn't written yet; returns how many messages this start wrote, and how many all starts wrote.

        `aside` takes the messages of a portion and its number, and returns those to replay (default: all are replayed).
        """
        plan = self._plan(source, spark, rate)
        progress = self._progress()
        written, total = 0, int(progress["messages"])
        for at, portion in enumerate(plan.portions()):
            if at < progress["done"]:
                continue
            began = time.monotonic()
            found = source.read(portion)
            seen, found = _counting(found if aside is None else aside(found, at))
            if progress.get("begun") == at:
                found = without(found, self._since(spark, progress["ends"]), self.name)
            else:
                progress = {"done": at, "begun": at, "ends": self._ends(spark), "messages": total}
                self._note_progress(progress)
            new, found = _counting(found)
            write_records(again(found, self.name, ordered=source.ordered), self._target, self._connection)
            written, total = written + _counted(new), total + _counted(seen)
            progress = {"done": at + 1, "messages": total}
            self._note_progress(progress)
            self._note(f"portion {at + 1} done, {written:,} messages")
            if rate is not None:
                time.sleep(max(0.0, _counted(new) / rate - (time.monotonic() - began)))
        return written, total

    def _plan(self, source: Source, spark: SparkSession, rate: float | None) -> Plan:
        told = self._state.read(_PLAN)
        with Cluster(spark, self._connection) as cluster:
            target = cluster.topic_ids([self._target])
        if told is None:
            plan = planned(source, rate)
            self._state.create(_PLAN, json.dumps([plan.size, plan.ranges, plan.topic_ids, target]))
        else:
            plan, known = self._stored(told)
            _refuse_made_again(known, target)
        source.hold_to(plan.topic_ids)
        return plan

    def _stored(self, told: str) -> tuple[Plan, dict[str, str]]:
        """Reads a plan, and the id that the target had."""
        try:
            size, ranges, ids, target = json.loads(told)
        except ValueError as error:
            raise FailedPrecondition(
                f"{self._state.full(_PLAN)} was written by an earlier version of kafka_pubsub, or isn't whole: begin "
                "another replay, with another --state"
            ) from error
        return Plan(size, [Range(TopicPartition(*at), first, end) for at, first, end in ranges], ids), target

    def _progress(self) -> dict[str, Any]:
        """Reads the last stored progress.

        Each progress is a file of its own, because a file that is replaced doesn't exist for a moment.
        """
        names = [name for name in self._state.names(_PROGRESS) if name.endswith(".json")]
        self._notes = int(names[-1].removesuffix(".json")) if names else 0
        found: dict[str, Any] = (
            json.loads(self._state.read(f"{_PROGRESS}/{names[-1]}") or "")
            if names
            else {"done": 0, "messages": 0}
        )
        return found

    def _note_progress(self, progress: dict[str, Any]) -> None:
        self._notes += 1
        self._state.create(f"{_PROGRESS}/{self._notes:09d}.json", json.dumps(progress))
        self._state.delete(f"{_PROGRESS}/{self._notes - 1:09d}.json")

    def _ends(self, spark: SparkSession) -> dict[str, int]:
        with Cluster(spark, self._connection) as cluster:
            return {str(at.partition): end for at, end in cluster.ends([self._target]).items()}

    def _since(self, spark: SparkSession, ends: Mapping[str, Any]) -> DataFrame:
        return messages(
            spark,
            self._target,
            bootstrap=self._connection.bootstrap,
            config=self._connection.config,
            starting={self._target: {int(number): end for number, end in ends.items()}},
        )


def _counting(frame: DataFrame) -> tuple[Observation, DataFrame]:
    """Returns an observation that counts the rows of a DataFrame while they are used, and that DataFrame."""
    seen = Observation()
    return seen, frame.observe(seen, F.count(F.lit(1)).alias("rows"))


def _counted(seen: Observation) -> int:
    return int(seen.get.get("rows", 0))
