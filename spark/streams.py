"""How every streaming job starts, tells its progress and ends.

Rules
1. Before anything is read: the checkpoint is this job's, for these topics and this place to write; and what it
   should read next is still there, or the error says what is lost.
2. A stream ends when all is read, or (`follow`) when somebody stops it; either way its last batch is whole.
3. What is deleted while it runs is told in the same words. With lost="skip" the look is before each batch, so an
   offset that is named may still have come: a consumer reads ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kafka_pubsub.errors import FailedPrecondition, PubSubError

from . import marks
from .cluster import Cluster
from .files import Files
from .job import Context
from .transforms.messages import Topics, may_hold_retries, raw_records
from .transforms.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Run", "Streaming", "prepare"]

#: Seconds between looks at a running query.
_LOOK = 1


@dataclass(frozen=True)
class Streaming:
    """What `follow_options` gave."""

    follow: bool = False
    every: str = "10 seconds"
    max_per_batch: int | None = None
    lost: Literal["fail", "skip"] = "fail"


@dataclass
class Run:
    """One start of a streaming job: the frame comes in, batches go out."""

    context: Context
    streaming: Streaming
    checkpoint: Files
    #: What retention has taken, for a person; only with lost="skip".
    lost: list[str] = field(default_factory=list)
    #: Up to which offset of a partition that was told.
    told: dict[tuple[str, int | None], int] = field(default_factory=dict)
    batches: int = 0
    rows: int = 0

    @property
    def identity(self) -> str:
        """The query's id, which is the checkpoint's: the same at each start."""
        return marks.query_of(self.checkpoint) or ""

    def go(
        self,
        frame: DataFrame,
        each_batch: Callable[[DataFrame, int], int | None],
        *,
        query: str | None = None,
        mode: str = "append",
    ) -> None:
        """Runs until all is read; `each_batch` may return how many rows it took."""
        from .transforms.outgoing import start

        failures: list[BaseException] = []

        def take(batch: DataFrame, number: int) -> None:
            try:
                if self.streaming.lost == "skip":
                    self._tell(self._lost(batch.sparkSession))
                self._count(each_batch(batch, number), number)
            except PubSubError as error:
                # Through Java and back an exception is only its text.
                failures.append(error)
                raise

        running = start(
            frame,
            take,
            query or f"kafka_pubsub {self.context.name}",
            self.checkpoint.root,
            available_now=not self.streaming.follow,
            every=self.streaming.every,
            mode=mode,
        )
        try:
            while not running.awaitTermination(_LOOK):
                pass
        except Exception as error:
            raise (failures[0] if failures else self._explained(error, frame.sparkSession)) from error
        finally:
            _stop(running)

    def go_counting(self, frame: DataFrame, each_batch: Callable[[DataFrame, int], None]) -> None:
        """`go` with batches that are used several times: each is kept until it is done, and its rows are counted."""

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
        """What the job reads; `beside` as `rows` takes it."""
        records = raw_records(
            spark,
            topic,
            self.context.place,
            stream=True,
            max_per_batch=self.streaming.max_per_batch,
            lost=self.streaming.lost,
        )
        return rows(records, retry_topics=may_hold_retries(topic), beside=beside)

    def append(self, rows: DataFrame, to: str, number: int) -> None:
        """Adds a batch's rows to a Delta table."""
        # By the batch's number Delta knows what it has, so a repeat adds nothing.
        options = {"txnAppId": self.identity, "txnVersion": str(number)}
        rows.write.format("delta").mode("append").options(**options).save(to)

    def facts(self, rows: str, to: str) -> dict[str, Any]:
        """What every outcome says; `rows` names what was counted."""
        return {"batches": self.batches, rows: self.rows, "lost": self.lost, "to": to}

    def _count(self, rows: int | None, number: int) -> None:
        self.batches += 1
        self.rows += rows or 0
        told = "" if rows is None else f", {self.rows:,} so far"
        self.context.note(f"batch {number} done{told}")

    def _tell(self, lost: Iterable[marks.Loss]) -> None:
        """Notes what wasn't told yet."""
        for each in lost:
            told = self.told.get(each[:2], -1)
            if each.last <= told:
                continue
            self.told[each[:2]] = each.last
            self.lost.append(str(each._replace(first=max(each.first, told + 1))))
            self.context.note(f"lost: {self.lost[-1]}")

    def _refuse(self, lost: Sequence[marks.Loss]) -> None:
        """`FailedPrecondition` with what is lost, if anything is."""
        if lost:
            raise FailedPrecondition(
                f"what {self.context.name} should read next is lost: {'; '.join(map(str, lost))}. "
                "--lost skip goes on without"
            )

    def _lost(self, spark: SparkSession) -> list[marks.Loss]:
        with Cluster(spark, self.context.place) as cluster:
            return marks.lost_since(self.checkpoint, cluster)

    def look(self, spark: SparkSession) -> None:
        """Before the start: refuses what is lost, or notes it where it may be."""
        lost = self._lost(spark)
        if self.streaming.lost == "fail":
            self._refuse(lost)
        self._tell(lost)

    def _explained(self, error: Exception, spark: SparkSession) -> Exception:
        text = str(error)
        if "DATA_LOSS" not in text and "Some data may have been lost" not in text:
            return error
        try:
            self._refuse(self._lost(spark))
        except FailedPrecondition as refusal:
            return refusal
        return FailedPrecondition(
            f"messages were deleted before {self.context.name} could read them (retention, or the topic was made "
            f"again): {text[:300]}. --lost skip goes on without"
        )


def prepare(
    context: Context, spark: SparkSession, streaming: Streaming, checkpoint: str, about: Mapping[str, str]
) -> Run:
    """Claims the checkpoint and looks whether the job can go on where it stopped."""
    files = Files(spark, checkpoint)
    marks.claim(files, "checkpoint", {"job": context.name, **about})
    run = Run(context, streaming, files)
    run.look(spark)
    return run


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        query.stop()
