"""How every streaming job starts, tells its progress and ends.

Rules
1. Before anything is read: the checkpoint is this job's, for these topics and this place to write; and what it
   should read next is still there, or the error says what is lost.
2. A stream ends when all is read, or (`follow`) when somebody stops it; either way its last batch is whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kafka_pubsub.errors import FailedPrecondition, PubSubError

from . import marks
from .cluster import Cluster
from .files import Files
from .job import Context
from .transforms.messages import Topics, messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
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
            raise (failures[0] if failures else _explained(error)) from error
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

    def messages(self, spark: SparkSession, topic: Topics) -> DataFrame:
        """What the job reads."""
        place = self.context.place
        return messages(
            spark,
            topic,
            bootstrap=place.bootstrap,
            config=place.config,
            stream=True,
            max_per_batch=self.streaming.max_per_batch,
            lost=self.streaming.lost,
        )

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


def prepare(
    context: Context, spark: SparkSession, streaming: Streaming, checkpoint: str, about: Mapping[str, str]
) -> Run:
    """Claims the checkpoint and looks whether the job can go on where it stopped."""
    files = Files(spark, checkpoint)
    marks.claim(files, "checkpoint", {"job": context.name, **about})
    with Cluster(spark, context.place) as cluster:
        lost = marks.lost_since(files, cluster)
    if lost and streaming.lost == "fail":
        raise FailedPrecondition(
            f"what {context.name} should read next is lost: {'; '.join(lost)}. --lost skip goes on without"
        )
    for each in lost:
        context.note(f"lost: {each}")
    return Run(context, streaming, files, lost)


def _stop(query: StreamingQuery) -> None:
    if query.isActive:
        query.stop()


def _explained(error: Exception) -> Exception:
    text = str(error)
    if "DATA_LOSS" in text or "Some data may have been lost" in text:
        first: Any = re.search(r"(?:Cannot fetch|were changed|may have been lost)[^\n]*", text)
        return FailedPrecondition(
            "messages were deleted before they were read (retention, or the topic was made again): "
            f"{first[0] if first else text[:300]}. --lost skip goes on without"
        )
    return error
