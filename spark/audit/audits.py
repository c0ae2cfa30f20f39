"""Audits a topic: the publisher's order, the archive compared with the log, and the state of the subscriptions.

Theory. The audit reads up to ends that it notes first, so that all steps check the same messages. Each step makes a
DataFrame of findings. Most of these are empty, and only findings are brought to the driver, at most `LISTED` of each
step.

Rules
1. The topic is read once. The columns that the steps need (offsets, keys, numbers, sizes, a hash of the bytes that are
   compared) are kept on the executors' disks, without the bodies. Only --expect reads the bodies, once more.
2. What changes during the audit isn't a finding (`audit/subscriptions.py`).
3. A topic's lanes are read and checked with it. A subscription's state is one snapshot for each lane.
4. An audit that goes on from an earlier one checks the messages that came since. It reads earlier messages only where
   the archive wasn't compared yet, and where a subscription hasn't finished them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.topics.key_places import former_partitions, remedy

from ..archive.blocks import compared, content_of, within
from ..archive.table import archive_table
from ..archive.taken_out import TakenOut, taken_out
from ..base.cluster import Cluster
from ..base.connection import Connection
from ..base.files import Files
from ..reading.expectations import split
from ..reading.messages import Offsets, by_topic, raw_records
from ..reading.rows import may_be_retry, rows
from ..run import ownership
from ..run.bodies import Bodies
from ..run.losses import ids_of
from .counts import counted, delays
from .order import highest, keys_out_of_place, number_of, numbered, out_of_order
from .rates import spans_of
from .snapshots import Ends, Snapshot, of_lane, take
from .subscriptions import finished, judged, unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["LISTED", "Audit", "Step", "SubscriptionAudit"]

#: How many findings of a step are listed; the others are only counted.
LISTED = 1000
#: Greater than every offset.
_NEVER = 2**62
#: The states of messages that aren't acked.
_LEFT = ("waiting", "parked", "dead")


@dataclass
class Step:
    """The result of one check: the number of findings of each kind, and the first findings."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    #: What the user can do about the findings; empty: nothing is advised.
    advice: str = ""

    @property
    def clean(self) -> bool:
        """Whether the check found nothing."""
        return not self.counts

    def add(self, other: Step) -> None:
        """Adds what the same check found in another lane."""
        self.findings += other.findings
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count


@dataclass
class SubscriptionAudit:
    """How many messages of the topic a subscription has in each state, and the findings about it."""

    name: str
    acked: int
    waiting: int
    parked: int
    dead: int
    reasons: dict[str, int]
    step: Step


class Audit:
    """One audit of one topic.

    `sequence` is the SQL expression for a message's number, `first` the number that each key begins with, `archive` the
    archive to compare (default of all: None).
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        topic: str,
        note: Callable[[str], None],
        *,
        sequence: str | None = None,
        first: int | None = None,
        archive: str | None = None,
    ) -> None:
        self.spark = spark
        self.connection = connection
        self.topic = topic
        self._note = note
        self.sequence = sequence
        self._archive = None if archive is None else archive_table(spark, archive, option="--archive")
        #: For each subscription its snapshot of each lane, by Kafka topic.
        self._taken: dict[str, dict[str, Snapshot]] = {}
        self._kept: DataFrame | None = None
        self._counted_messages = 0
        self._given_ids: int | None = None
        # For the first findings Spark searches one partition, then four more, and so on. There are mostly none, so
        # all partitions are searched at once, on all cores.
        spark.conf.set("spark.sql.limit.initialNumPartitions", "1000000")
        with Cluster(spark, connection) as cluster:
            cluster.check([topic])
            #: The Kafka topics that are read: the topic's own, and those of its lanes.
            self.topics = cluster.with_lanes([topic])
            self.beginnings = cluster.beginnings(self.topics)
            self.ends = cluster.ends(self.topics)
            self.partitions = len(cluster.partitions(topic))
            self.cluster_id = cluster.identity()
            self.topic_ids = cluster.topic_ids(self.topics)
            times = cluster.times(self.topics)
        # Where messages were deleted, a key's first ones may be among them.
        self._first = None if any(self.beginnings.values()) else first
        self.spans = None if times is None else spans_of(*times)
        #: For each partition the offset from which messages are checked, the one from which they are read (`_start`),
        #: and the one up to which an earlier audit compared the archive (`_compared`).
        self.since: Ends = self.beginnings
        self._start: Ends = self.beginnings
        self._compared: Ends = {}
        self._reached: Ends = {}
        #: What was taken out of the archive on purpose, once it is compared.
        self.taken_out = TakenOut("", None)

    def begin(
        self,
        subscriptions: Sequence[SubscriptionRecord],
        since: Ends | None = None,
        compared: Ends | None = None,
    ) -> None:
        """Takes a snapshot of each subscription, and determines from which offsets the topic must be read.

        `since` are the offsets at which an earlier audit ended, and `compared` those up to which it compared the
        archive.
        """
        for each in subscriptions:
            self._note(f"subscription {each.name}")
            self._taken[each.name] = {
                topic: take(
                    self.spark, self.connection, topic, of_lane(each, topic), self._records, self._note
                )
                for topic in self.topics
            }
        if since is None:
            return
        self.since = {at: max(first, since.get(at, 0)) for at, first in self.beginnings.items()}
        bounds = [
            self.since,
            *(self._lowest(*each) for lanes in self._taken.values() for each in lanes.items()),
        ]
        if self._archive is not None:
            self._compared = compared or {}
            bounds.append(self._compared_from())
        self._start = {at: min(each[at] for each in bounds if at in each) for at in self.since}

    def _compared_from(self) -> Ends:
        return {at: max(first, self._compared.get(at, 0)) for at, first in self.beginnings.items()}

    @property
    def _whole(self) -> bool:
        return self.since == self.beginnings

    def close(self) -> None:
        """Frees what `kept` stored on the executors."""
        if self._kept is not None:
            self._kept.unpersist()

    def messages(self) -> DataFrame:
        """Returns the topic's messages up to the noted ends, with bodies; each use of them reads the topic again."""
        return self._read(self._start)

    def _read(self, starts: Ends) -> DataFrame:
        found = self._raw(by_topic(starts), by_topic(self.ends))
        return rows(found, retry_topics=may_be_retry(self.topic))

    def kept(self) -> DataFrame:
        """Returns the columns of each message that the steps need, which the executors store (rule 1)."""
        if self._kept is None:
            found = self.messages()
            size = F.coalesce(F.length("data"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
            told = {"size": size, "given": F.when(_has_id(), F.col("message_id"))}
            if self.sequence is not None:
                told["number"] = number_of(found, self.sequence)
            if self._archive is not None:
                told["content"] = content_of()
            columns = [column.alias(name) for name, column in told.items()]
            found = found.select("topic", "partition", "offset", "key", "publish_time", *columns)
            self._kept = found.persist(StorageLevel.DISK_ONLY)
        return self._kept

    def _judged(self) -> DataFrame:
        """Returns the stored messages without those that an earlier audit has checked."""
        return self.kept() if self._start == self.since else self._from(self.since)

    def _from(self, offsets: Ends) -> DataFrame:
        return within(self.kept(), _ranges(offsets, self.ends))

    def _records(
        self,
        topic: str,
        ends: Ends,
        starting: Mapping[int, int] | None = None,
    ) -> DataFrame:
        mine = {at: end for at, end in ends.items() if at.topic == topic}
        return self._raw({topic: starting or {}}, by_topic(mine))

    def _raw(self, starting: Offsets, ending: Offsets) -> DataFrame:
        # If retention deletes messages meanwhile, the comparison with the archive names them.
        return raw_records(
            self.spark,
            list(ending),
            self.connection,
            starting=starting,
            ending=ending,
            lost="skip",
            only=True,
        )

    def volume(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Counts the messages, bytes, keys and times of each partition, and the messages of each span of time."""
        self._note("reading and counting")
        found = counted(self._judged(), self.spans)
        self._given_ids = found.given
        partitions = found.by_partition(_ranges(self.since, dict(sorted(self.ends.items()))))
        self._counted_messages = sum(each["messages"] for each in partitions)
        return partitions, found.by_span()

    def order(self, before: DataFrame | None = None) -> Step:
        """Checks the log by the publisher's numbers; `before` has each key's highest number of earlier audits."""
        self._note("order of the log")
        return self._step("order of the log", out_of_order(self.numbers(), before, first=self._first))

    def numbers(self) -> DataFrame:
        """Returns the checked messages that have a key, with their number."""
        return self._judged().where("key is not null")

    def highest(self) -> DataFrame:
        """Returns each key's highest number."""
        return highest(self.numbers())

    def expectations(self, conditions: Sequence[str], bodies: Bodies) -> Step:
        """Finds the messages of which a condition doesn't hold, or whose bodies can't be decoded."""
        self._note("expectations")
        _, rejected = split(bodies.decoded(self._whole_messages(), self.topic), conditions)
        kind, said = F.lit("unexpected").alias("kind"), F.col("reason").alias("said")
        return self._step("expectations", rejected.select(kind, "topic", "partition", "offset", "key", said))

    def _whole_messages(self) -> DataFrame:
        """Returns the checked messages with their bodies."""
        return self._read(self.since)

    def splits(self) -> Step:
        """Finds keys that lie in several partitions, or in another one than publishing puts them into."""
        self._note("keys and partitions")
        step = self._step("keys and partitions", keys_out_of_place(self._judged(), self.partitions))
        if not step.clean:
            misplaced = {
                each["key"].encode(): each["partition"]
                for each in step.findings
                if each["kind"] == "misplaced"
            }
            step.advice = remedy(former_partitions(self.partitions, misplaced))
        return step

    def ids(self) -> Step:
        """Finds messages that were written twice with one id, as a repeated batch writes them."""
        if self._given_ids == 0:
            # `volume` has counted the ids: most topics have none, and need no further check.
            return Step("ids")
        self._note("ids")
        given = self._judged().where("given is not null")
        twice = given.groupBy("given").agg(
            F.count("*").alias("times"),
            *(F.min(name).alias(name) for name in ("topic", "partition", "offset", "key")),
        )
        said = F.concat(
            F.lit("id "), "given", F.lit(" is there "), F.col("times").cast("string"), F.lit(" times")
        )
        found = twice.where("times > 1").select(
            F.lit("duplicate").alias("kind"), "topic", "partition", "offset", "key", said.alias("said")
        )
        return self._step("ids", found)

    def archive(self) -> tuple[Step, dict[str, int]]:
        """Compares the archive with the log; also returns by how many offsets it is behind in each partition."""
        self._note("archive and log")
        # The archive's progress is read before its messages: otherwise a batch in between would look like a gap.
        table, told = self._archive, {}
        if table is None:
            raise ValueError("this audit has no archive")
        if table.files is not None:
            checkpoint = Files(self.spark, table.checkpoint)
            ids = ids_of(checkpoint)
            told = {
                topic: offsets
                for topic, offsets in ownership.committed_offsets(checkpoint).items()
                if ids.get(topic) in (None, self.topic_ids.get(topic))
            }
        if self.topic not in told:
            told = by_topic(_reached(self._archived()))
        self._reached = {
            at: min(end, told.get(at.topic, {}).get(at.partition, 0)) for at, end in self.ends.items()
        }
        ranges = _ranges(self._compared_from(), self._reached)
        # Spark reads the messages last. At this version nothing lacks that isn't in the notes, which are read after it
        # was chosen and were written before the deletion.
        held = within(self._archived(version=table.version()), ranges)
        self.taken_out = taken_out(table, self.topic_ids.values())
        log = self.taken_out.others(within(self.kept(), ranges))
        step = self._step("archive and log", compared(log, self.taken_out.others(held)))
        behind = {f"{at.topic}:{at.partition}": end - self._reached[at] for at, end in self.ends.items()}
        return step, {at: left for at, left in behind.items() if left > 0}

    @property
    def archive_address(self) -> str:
        """The address of the archive that is compared; empty: there is none."""
        return "" if self._archive is None else self._archive.address

    @property
    def archive_progress(self) -> dict[str, Any] | None:
        """The archive's address and the offsets up to which it was compared, for the next audit."""
        if self._archive is None:
            return None
        return {"address": self._archive.address, "reached": by_topic(self._reached)}

    def _archived(self, *, version: int | None = None) -> DataFrame:
        """Returns the topic's messages in the archive (default: now), without those that were compared earlier."""
        if self._archive is None:
            raise ValueError("this audit has no archive")
        found = self._archive.read(version=version).where(F.col("topic").isin(self.topics))
        if "topic_id" in found.columns:
            # Of a topic that was made again the archive also holds the messages of the earlier one.
            known = F.coalesce("topic_id", F.lit("")).isin("", *self.topic_ids.values())
            found = found.where(known)
        if not self._compared:
            return found
        # Delta skips files by this bound.
        starts = self._compared_from()
        found = found.where(F.col("offset") >= min(starts.values()))
        return within(found, {at: (start, _NEVER) for at, start in starts.items()})

    def archive_order(self) -> Step | None:
        """Checks the archive by the publisher's numbers; None without numbers or if only new messages are checked."""
        if self.sequence is None or not self._whole:
            return None
        self._note("order of the archive")
        return self._step("order of the archive", out_of_order(numbered(self._archived(), self.sequence)))

    def delays(self) -> dict[str, Any]:
        """Measures the seconds between publishing and archiving, as `audit_counts.delays` returns them."""
        self._note("delays")
        return delays(self._archived(), self.spans)

    def subscription(self, record: SubscriptionRecord, before: int = 0) -> SubscriptionAudit:
        """Counts a subscription's messages by state, and finds contradictions in them.

        `before` is how many messages earlier audits counted.
        """
        lanes = [self._in_lane(record, *each) for each in self._taken[record.name].items()]
        step = Step(f"subscription {record.name}")
        reasons: Counter[str] = Counter()
        for each in lanes:
            step.add(each.step)
            reasons.update(each.reasons)
        waiting, parked, dead = (sum(getattr(each, name) for each in lanes) for name in _LEFT)
        acked = max(0, before + self._counted_messages - waiting - parked - dead)
        return SubscriptionAudit(record.name, acked, waiting, parked, dead, dict(reasons), step)

    def _in_lane(self, record: SubscriptionRecord, topic: str, taken: Snapshot) -> SubscriptionAudit:
        """Judges what the subscription has done with one lane; doesn't count what is acked."""
        # Below these offsets every message is finished and none waits in the retry topic, so none is checked.
        home = finished(self._from(self._lowest(topic, taken)), taken.found)
        ordered = record.options.message_ordering and taken.whole
        step = self._step(
            f"subscription {record.name}", judged(topic, home, taken.waiting, taken.dead, ordered=ordered)
        )
        for each in [*unreadable(taken.found), *self._beyond(taken.found)]:
            _add(step, dict(zip(("kind", "topic", "partition", "offset", "key", "said"), each, strict=True)))
        return self._counted(record.name, topic, home, taken, step)

    def _lowest(self, topic: str, taken: Snapshot) -> Ends:
        """Returns the first offset of each partition of a lane whose message may be unfinished."""
        lowest = {row.partition: row.position for row in taken.found.table.collect()}
        for row in taken.waiting.groupBy("partition").agg(F.min("offset").alias("first")).collect():
            lowest[row.partition] = min(row["first"], lowest.get(row.partition, row["first"]))
        return {
            at: max(self.beginnings[at], min(lowest.get(at.partition, 0), end))
            for at, end in self.ends.items()
            if at.topic == topic
        }

    def _beyond(self, found: Any) -> list[tuple[Any, ...]]:
        with Cluster(self.spark, self.connection) as cluster:
            latest = cluster.ends(self.topics)
        return [
            (
                "beyond",
                row.topic,
                row.partition,
                row.position,
                None,
                "the position is behind the end of the log",
            )
            for row in found.table.collect()
            if row.position > latest.get(TopicPartition(row.topic, row.partition), row.position)
        ]

    def _counted(
        self, name: str, topic: str, home: DataFrame, taken: Snapshot, step: Step
    ) -> SubscriptionAudit:
        waiting, dead = taken.waiting, taken.dead
        left = home.where("NOT finished").count()
        moved = self._known(topic, waiting).select("partition", "offset").distinct().count()
        reasons = {row.reason: row["count"] for row in dead.groupBy("reason").count().collect()}
        ended = self._known(topic, dead).select("partition", "offset").distinct().count()
        waiting.unpersist()
        dead.unpersist()
        return SubscriptionAudit(name, 0, left, moved, ended, reasons, step)

    def _known(self, topic: str, moved: DataFrame) -> DataFrame:
        """Returns those of a lane's moved messages that were published before the noted ends."""
        ends = [(at.partition, end) for at, end in self.ends.items() if at.topic == topic]
        table = self.spark.createDataFrame(ends, "partition int, _end bigint")
        return moved.join(F.broadcast(table), "partition").where("offset < _end").drop("_end")

    def _step(self, name: str, findings: DataFrame) -> Step:
        step = Step(name)
        # Findings are rare: one pass brings the first ones, and only if there are `LISTED` are all counted.
        listed = findings.limit(LISTED).collect()
        for row in listed:
            _add(step, row.asDict())
        if len(listed) == LISTED:
            step.counts = {row.kind: row["count"] for row in findings.groupBy("kind").count().collect()}
        return step


def _ranges(starts: Ends, ends: Ends) -> dict[TopicPartition, tuple[int, int]]:
    return {at: (starts[at], end) for at, end in ends.items() if at in starts}


def _reached(kept: DataFrame) -> Ends:
    """Returns how far an archive without a readable checkpoint has come, by the messages that it holds."""
    found = kept.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
    return {TopicPartition(row.topic, row.partition): row["last"] + 1 for row in found}


def _has_id() -> Column:
    """Returns whether an id was given to the message so that it is there once; dead letters of one message share it."""
    names = F.col("headers")["key"]
    given = F.array_contains(names, "ps-id") & ~F.array_contains(names, "ps-dead-subscription")
    return F.coalesce(given, F.lit(False))


def _add(step: Step, finding: dict[str, Any]) -> None:
    key = finding["key"]
    finding["key"] = None if key is None else bytes(key).decode("utf-8", "backslashreplace")
    step.findings.append(finding)
    step.counts[finding["kind"]] = step.counts.get(finding["kind"], 0) + 1
