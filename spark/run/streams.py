"""Starts every streaming job, notes its progress and ends it.

Rules
1. Three checks come before anything is read. The checkpoint must belong to this job, with these topics and this target.
   It must not be older than the job's tables (`restored.py`). And the offsets that the job should read next must still
   exist, in the same topics (`losses.py`); otherwise the error says what is lost.
2. A job ends when all is read or, with `follow`, when it is stopped. Either way its last batch is whole.
3. Messages that are deleted while the job runs are reported with the same text. With lost="skip" the check runs before
   each batch. It may name an offset that the job still gets, because a consumer reads ahead.
4. Of two drivers on one checkpoint one ends with an error that says so. Spark's logs of offsets and commits and
   Delta's transactions decide which one. What the other driver wrote stays, and is there once.
5. Between two batches the job's tables are optimized and vacuumed, and other chores done, when that is due. The
   checkpoint keeps the times, so a job that is started each hour doesn't repeat them each hour. A query that follows is
   stopped for it.
6. A batch that wasn't finished is repeated by itself, before the query goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kafka_pubsub.errors import FailedPrecondition, PubSubError

from ..base.cluster import Cluster
from ..base.files import Files
from ..base.spark_session import cause_of, is_of_spark
from ..base.tables import Table
from ..reading.messages import Topics, may_hold_retries, raw_records
from ..reading.rows import rows
from . import ownership
from .job import Context, seconds_of
from .losses import Loss, ids_of, lost_since, made_again, note_ids, take_out, topics_of
from .progress import Gauges, History, progress_of
from .restored import refuse_ahead

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Chore", "Run", "Streaming", "prepare"]

#: Seconds between two checks of a running query.
_LOOK = 1
#: So many checks lie between two looks for what is lost, while a query waits.
_LOST_LOOKS = 10
#: So many checks a query may be busy when maintenance is due.
_BUSY_LOOKS = 60
#: The directory of a checkpoint that holds a file as soon as a batch was planned.
_BEGUN = "offsets"
#: When each chore was done last: seconds since 1970, by name.
_MAINTENANCE = "kafka_pubsub_maintenance.json"
#: Texts by which Spark says that messages are gone, and that a topic's partitions or ends aren't those of the start.
_GONE = ("DATA_LOSS", "Some data may have been lost")
#: By this Spark 4.1 ends a query whose first batch was planned by an earlier one; the batch itself is committed then.
_UNREPORTED = 'return value of "scala.Option.get()" is null'
_CHANGED = "The error could be transient - restart your query"
#: Texts by which Spark and Delta say that another query works on the same checkpoint.
_TAKEN_OVER = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Concurrent update to the log",
    "ConcurrentTransactionException",
    "DELTA_CONCURRENT_TRANSACTION",
    "Multiple streaming queries are concurrently using",
)


@dataclass(frozen=True)
class Streaming:
    """The values of `follow_options` and `table_options`."""

    follow: bool = False
    every: str = "10 seconds"
    max_per_batch: int = 500_000
    lost: Literal["fail", "skip"] = "fail"
    optimize_every: str | None = None
    vacuum_every: str | None = None


class Chore(NamedTuple):
    """What is done every so many seconds; `do` takes when it was done last (seconds since 1970; None: never)."""

    every: float
    do: Callable[[float | None], None]


@dataclass
class Run:
    """One start of a streaming job: it runs a query over a DataFrame and hands its batches to the job."""

    context: Context
    streaming: Streaming
    checkpoint: Files
    #: What the checkpoint belongs to: the job, its topics and its target (`ownership.py`).
    about: Mapping[str, str]
    #: The tables that the job writes.
    tables: Sequence[Table] = ()
    #: What is done with these tables between two batches, by name.
    chores: dict[str, Chore] = field(default_factory=dict)
    #: What was deleted before the job could read it, as text; only with lost="skip".
    lost: list[str] = field(default_factory=list)
    #: Up to which offset of a partition such losses were reported.
    told: dict[tuple[str, int | None], int] = field(default_factory=dict)
    #: The id of each topic that the job reads (`losses.py`).
    ids: dict[str, str] = field(default_factory=dict)
    batches: int = 0
    rows: int = 0
    #: How many small files were put together.
    optimized: int = 0
    #: The progress of each batch, as Spark reports it.
    progress: History = field(default_factory=History)
    #: The same figures among Spark's metrics; None: they aren't there.
    gauges: Gauges | None = None
    began: float = field(default_factory=time.time)
    #: The number of the last batch that was counted.
    _counted: int = -1
    #: When each chore was done last; None: it wasn't read yet.
    _last: dict[str, float] | None = None
    #: Whether a batch was finished since.
    _unmaintained: bool = False
    #: The client that asks the cluster while the query runs: making one takes longer than a question.
    _asked: Cluster | None = None

    @property
    def identity(self) -> str:
        """The id of the query. The checkpoint keeps it, so it is the same at each start."""
        return ownership.query_of(self.checkpoint) or ""

    def go(
        self,
        frame: DataFrame,
        each_batch: Callable[[DataFrame, int], int | None],
        *,
        query: str | None = None,
        mode: str = "append",
    ) -> None:
        """Runs until all is read or, with `follow`, until it is stopped.

        `each_batch` takes a batch and its number; it may return how many rows it took.
        """
        with Cluster(frame.sparkSession, self.context.connection) as cluster:
            self._asked = cluster
            try:
                self._go(frame, each_batch, query, mode)
            finally:
                self._asked = None

    def _go(
        self,
        frame: DataFrame,
        each_batch: Callable[[DataFrame, int], int | None],
        query: str | None,
        mode: str,
    ) -> None:
        from ..writing.outgoing import start

        failures: list[Exception] = []
        spark, name = frame.sparkSession, query or f"kafka_pubsub {self.context.name}"
        ownership.claim(self.checkpoint, "checkpoint", self.about, begun=_BEGUN)
        self._know_topics(spark)

        def take(batch: DataFrame, number: int) -> None:
            try:
                self._take(batch, number, each_batch)
            except Exception as error:
                # Spark passes the error through Java, where only its text survives.
                failures.append(error)
                raise

        def run(**trigger: Any) -> bool:
            failures.clear()
            try:
                return self._watch(start(frame, take, name, self.checkpoint.root, mode=mode, **trigger))
            except Exception as error:
                if not failures and "once" in trigger and self._only_unreported(error):
                    return False
                raise self._explained(error, failures, spark) from error

        paused = True
        while paused:
            while ownership.is_open(self.checkpoint):
                # With partitions that came since, Spark refuses to repeat one in a query that ends when all is read.
                run(once=True)
            paused = run(available_now=not self.streaming.follow, every=self.streaming.every)
            self._maintain(self.began if paused else 0)

    def _take(
        self, batch: DataFrame, number: int, each_batch: Callable[[DataFrame, int], int | None]
    ) -> None:
        if self.batches == 0:
            ownership.confirm(self.checkpoint, "checkpoint", self.about)
        self._tell_lost(batch.sparkSession)
        self._check_topics(batch.sparkSession, number)
        self._count(each_batch(batch, number), number)
        self._unmaintained = True

    def _know_topics(self, spark: SparkSession) -> None:
        """Begins topics that were made again at their beginning, if --lost says so, and reads the ids of the others."""
        with self._cluster(spark) as cluster:
            if self.streaming.lost == "skip" and (again := made_again(self.checkpoint, cluster)):
                take_out(self.checkpoint, again)
            topics = topics_of(self.checkpoint)
            now = cluster.topic_ids(topics)
        # A topic that was gone for a while may come again.
        self.ids = now | {topic: found for topic, found in ids_of(self.checkpoint).items() if topic in topics}
        note_ids(self.checkpoint, self.ids)

    @contextmanager
    def _cluster(self, spark: SparkSession) -> Iterator[Cluster]:
        """Returns the client of the query that runs; before that, one that is closed at once."""
        if self._asked is not None:
            yield self._asked
        else:
            with Cluster(spark, self.context.connection) as cluster:
                yield cluster

    def _check_topics(self, spark: SparkSession, number: int) -> None:
        """Stores the ids of new topics in a batch; raises `FailedPrecondition` if one was made again meanwhile."""
        known = dict(self.ids)
        with self._cluster(spark) as cluster:
            now = cluster.topic_ids(ownership.planned_offsets(self.checkpoint, number))
        for topic, found in now.items():
            if self.ids.setdefault(topic, found) != found:
                raise FailedPrecondition(
                    f"topic {topic!r} was made again while {self.context.name} ran, and what is left of the old one is "
                    f"lost. Start {self.context.name} again with --lost skip, and it reads the new one from its "
                    "beginning"
                )
        if self.ids != known:
            note_ids(self.checkpoint, self.ids)

    def topic_id(self, topic: Column) -> Column:
        """Returns the id of a topic that the job reads; null for others."""
        from pyspark.sql import functions as F

        texts = [F.lit(text) for pair in self.ids.items() for text in pair]
        return F.try_element_at(F.create_map(*texts), topic) if texts else F.lit(None).cast("string")

    def _only_unreported(self, error: Exception) -> bool:
        """Returns whether the batch is finished, and Spark 4.1 only failed to report it (SPARK-55271)."""
        return _UNREPORTED in str(cause_of(error)) and not ownership.is_open(self.checkpoint)

    def _tell_lost(self, spark: SparkSession) -> None:
        if self.streaming.lost == "skip":
            self._tell(self._lost(spark))

    def _watch(self, running: StreamingQuery) -> bool:
        """Notes the progress until the query ends, and stops the query when this method ends early.

        Returns whether it was stopped because tables are to be optimized or vacuumed.
        """
        busy = looks = 0
        lost: Sequence[Loss] = ()
        try:
            while not running.awaitTermination(_LOOK):
                self._note_progress(running)
                looks += 1
                if looks % _LOST_LOOKS == 0 and not running.status["isTriggerActive"]:
                    lost = self._still_lost(lost)
                if self._unmaintained and self.streaming.follow and self._due(self.began):
                    busy += 1
                    # A query that is never found between two batches is stopped in one, which is repeated.
                    if not running.status["isTriggerActive"] or busy > _BUSY_LOOKS:
                        return True
            self._note_progress(running)
            return False
        finally:
            if running.isActive:
                running.stop()

    def _still_lost(self, before: Sequence[Loss]) -> Sequence[Loss]:
        """Returns what is lost; raises `FailedPrecondition` if it was lost at the last look, too.

        To Spark a topic that is gone has no new messages, so a query would wait for them for good.
        """
        found = self._lost(self.checkpoint.spark) if self.streaming.lost == "fail" else []
        # A broker that is behind doesn't know every topic for a moment.
        self._refuse([each for each in found if each in before])
        return found

    def go_counting(self, frame: DataFrame, each_batch: Callable[[DataFrame, int], None]) -> None:
        """Does what `go` does, but keeps each batch in memory or on disk until it is finished, and counts its rows."""

        def take(batch: DataFrame, number: int) -> int:
            batch.persist()
            try:
                each_batch(batch, number)
                return batch.count()
            finally:
                batch.unpersist()

        self.go(frame, take)

    def messages(
        self, spark: SparkSession, topic: Topics, *, beside: Mapping[str, Column] | None = None
    ) -> DataFrame:
        """Returns the messages that the job reads; `beside` is passed to `rows`."""
        records = raw_records(
            spark,
            topic,
            self.context.connection,
            stream=True,
            max_per_batch=self.streaming.max_per_batch,
            lost=self.streaming.lost,
        )
        return rows(records, retry_topics=may_hold_retries(topic), beside=beside)

    def said(self, text: str) -> str:
        """Returns `text` and below it what was read and at which rate, in all and of each batch."""
        return f"{text}; {self.progress.total()}\n{self.progress.table()}".rstrip()

    def append(self, rows: DataFrame, to: Table, number: int) -> None:
        """Adds a batch's rows to a table; a repeated batch adds nothing."""
        to.append(rows, self.identity, number)

    def _note_progress(self, running: StreamingQuery) -> None:
        for told in running.recentProgress:
            number, found = int(told["batchId"]), progress_of(told)
            if not self.progress.is_new(number, found):
                continue
            if found.behind is None:
                found = found._replace(behind=self._behind(number))
            self.progress.take(number, found)
            self.context.note(f"batch {number}: {found}")
            if self.gauges is not None:
                self.gauges.show(found, self.progress.total())

    def _behind(self, number: int) -> int | None:
        """Counts the messages behind a batch now; None if the cluster doesn't answer."""
        read = ownership.planned_offsets(self.checkpoint, number)
        if not read:
            return None
        try:
            with self._cluster(self.checkpoint.spark) as cluster:
                ends = cluster.ends(cluster.topic_ids(read))
        except PubSubError:
            # The query itself ends with the reason, or goes on when the cluster answers again.
            return None
        return sum(max(0, end - read[at.topic].get(at.partition, 0)) for at, end in ends.items())

    def _due(self, first: float) -> list[str]:
        """Returns which chores are due; `first` stands for the last time of one that was never done."""
        last = self._maintained()
        return [
            name for name, each in self.chores.items() if last.get(name, first) + each.every <= time.time()
        ]

    def _maintain(self, first: float) -> None:
        """Does the chores that are due; `first` is as for `_due`."""
        due, last = self._due(first), self._maintained()
        self._unmaintained = False
        for name in due:
            self.chores[name].do(last.get(name))
        if due:
            self._last = {**last, **dict.fromkeys(due, time.time())}
            self.checkpoint.write(_MAINTENANCE, json.dumps(self._last))

    def _optimize(self, last: float | None) -> None:
        self.optimized += sum(table.optimize(self.context.note, last) for table in self.tables)

    def _vacuum(self, _: float | None) -> None:
        for table in self.tables:
            table.vacuum(self.context.note)

    def _maintained(self) -> dict[str, float]:
        if self._last is None:
            try:
                self._last = json.loads(self.checkpoint.read(_MAINTENANCE) or "{}")
            except ValueError:
                # The job was killed while it wrote the file: go on as if neither command had run.
                self._last = {}
        return self._last

    def facts(self, rows: str | None, to: str) -> dict[str, Any]:
        """Returns the facts of every outcome; `rows` names their count of rows; None leaves it out."""
        counted = {} if rows is None else {rows: self.rows}
        facts = {"batches": self.batches, **counted, "lost": self.lost, "to": to}
        total = self.progress.total()
        facts |= {"messages_read": total.rows, "messages_per_s": round(total.rows_per_s, 1)}
        facts |= {"behind": total.behind, "progress": self.progress.facts()}
        return {**facts, "optimized_files": self.optimized} if self.tables else facts

    def _count(self, rows: int | None, number: int) -> None:
        # A query that was stopped for a chore may have ended a batch that isn't committed: that one comes again.
        if number > self._counted:
            self._counted = number
            self.batches += 1
            self.rows += rows or 0
        told = "" if rows is None else f", {self.rows:,} so far"
        self.context.note(f"batch {number} done{told}")

    def _tell(self, lost: Iterable[Loss]) -> None:
        """Notes the losses that weren't reported yet."""
        for each in lost:
            told = self.told.get(each[:2], -1)
            if each.last <= told:
                continue
            self.told[each[:2]] = each.last
            self.lost.append(str(each._replace(first=max(each.first, told + 1))))
            self.context.note(f"lost: {self.lost[-1]}")

    def _refuse(self, lost: Sequence[Loss]) -> None:
        """Raises `FailedPrecondition` with what is lost, if anything is."""
        if lost:
            raise FailedPrecondition(
                f"what {self.context.name} should read next is lost: {'; '.join(map(str, lost))}. "
                "--lost skip goes on without"
            )

    def _lost(self, spark: SparkSession) -> list[Loss]:
        with self._cluster(spark) as cluster:
            return lost_since(self.checkpoint, cluster)

    def look(self, spark: SparkSession) -> None:
        """Checks before the start what is lost, and refuses it or, with lost="skip", notes it."""
        lost = self._lost(spark)
        if self.streaming.lost == "fail":
            self._refuse(lost)
        self._tell(lost)

    def _explained(self, error: Exception, failures: Sequence[Exception], spark: SparkSession) -> Exception:
        """Returns the error to raise for an error of the query; `failures`, of its batch, may follow from it."""
        cause = failures[0] if failures and not isinstance(error, PubSubError) else error
        if isinstance(cause, PubSubError):
            return cause
        text = str(error)
        if any(said in text for said in _TAKEN_OVER):
            return FailedPrecondition(
                f"another driver of {self.context.name} works with checkpoint {self.checkpoint.root} and has gone on; "
                "this one ends. Nothing is lost and nothing is there twice: let one of them run"
            )
        if not any(said in text for said in (*_GONE, _CHANGED)):
            return cause if is_of_spark(cause) else error
        try:
            self._refuse(self._lost(spark))
        except FailedPrecondition as refusal:
            return refusal
        if _CHANGED in text:
            return FailedPrecondition(
                f"the partitions of the topic changed while {self.context.name} ran: start it again and it goes on"
            )
        return FailedPrecondition(
            f"messages were deleted before {self.context.name} could read them (retention, or the topic was made "
            f"again): {text[:300]}. --lost skip goes on without"
        )


def prepare(
    context: Context,
    spark: SparkSession,
    streaming: Streaming,
    checkpoint: str,
    about: Mapping[str, str],
    tables: Sequence[Table] = (),
) -> Run:
    """Checks that the job may use the checkpoint and can go on where it stopped; writes nothing."""
    files = Files(spark, checkpoint)
    told = {"job": context.name, **about}
    seconds_of(spark, streaming.every, "--every")
    every = {"optimize": streaming.optimize_every, "vacuum": streaming.vacuum_every}
    spans = {name: seconds_of(spark, text, f"--{name}-every") for name, text in every.items() if text}
    for table in tables:
        table.check()
    mine = ownership.check(files, "checkpoint", told, begun=_BEGUN)
    run = Run(context, streaming, files, told, tables)
    doing = {"optimize": run._optimize, "vacuum": run._vacuum}
    run.chores = {name: Chore(span, doing[name]) for name, span in spans.items()}
    run.gauges = Gauges(spark, context.name)
    if mine:
        refuse_ahead(spark, files, *(table.address for table in tables))
        run.look(spark)
    return run
