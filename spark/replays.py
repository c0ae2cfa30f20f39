"""A replay: a plan of portions, written one after the other, and a file that says how far it has come.

Theory. Within a partition the order of offsets is the order of every key. So portions are blocks of offsets:
the first block of each partition, then the second. A portion that was interrupted has written, of each key, the
first so many; what is in the target already is found by its id, and only the rest is written.

Rules
1. The plan is made once and kept: what is archived or dies later is no part of it.
2. Before a portion begins, the ends of the target are noted; a repeat looks from there on.
3. The state says what is replayed, how and where to; a start that says something else is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from kafka_pubsub.errors import InvalidArgument

from . import ownership
from .cluster import Cluster
from .files import Files
from .place import Place
from .spark_session import first_line
from .transforms.messages import messages
from .transforms.outgoing import write_records
from .transforms.replaying import again, chosen, without

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Plan", "Replay", "filtered", "planned"]

#: Seconds of writing in a portion when the rate is limited: short beside a wait, long beside the start of a Spark job.
PORTION_S = 5.0
#: Offsets in a block when it isn't.
BLOCK = 50_000
_PLAN, _PROGRESS = "plan.json", "progress"

Block = tuple[str, int, int]


@dataclass(frozen=True)
class Plan:
    """Portions are lists of blocks: topic, partition, number of the block."""

    size: int
    total: int
    portions: Sequence[Sequence[Block]]


def filtered(source: DataFrame, where: str | None) -> DataFrame:
    """The messages that a SQL expression chooses."""
    if where is None:
        return source
    try:
        return source.where(where)
    except Exception as error:
        raise InvalidArgument(
            f"--where {where!r} isn't a condition over a message: {first_line(error)}"
        ) from error


def planned(source: DataFrame, rate: float | None) -> Plan:
    """Which blocks hold anything, in which portions."""
    partitions = max(1, source.select("topic", "partition").distinct().count())
    size = BLOCK if rate is None else max(1, int(rate * PORTION_S / partitions))
    block = F.floor(F.col("offset") / size).alias("block")
    rows = source.groupBy("topic", "partition", block).agg(F.count("*").alias("n")).collect()
    lines: dict[tuple[str, int], list[int]] = {}
    for row in sorted(rows, key=lambda each: each.block):
        lines.setdefault((row.topic, row.partition), []).append(row.block)
    longest = max(map(len, lines.values()), default=0)
    portions = [
        [(topic, number, line[at]) for (topic, number), line in sorted(lines.items()) if at < len(line)]
        for at in range(longest)
    ]
    return Plan(size, sum(row.n for row in rows), portions)


class Replay:
    """One replay, which may have been begun before."""

    def __init__(
        self,
        name: str,
        target: str,
        place: Place,
        state: Files,
        about: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self._target = target
        self._place = place
        self._state = state
        self._note = note
        self._notes = 0
        about = {"name": name, "to": target, **about}
        ownership.claim(state, "replay", about, begun=_PROGRESS)

    def go(self, source: DataFrame, rate: float | None) -> tuple[Plan, int]:
        """Writes what isn't written yet; the plan, and how many messages this start wrote."""
        plan = self._plan(source, rate)
        progress = self._progress()
        written = 0
        for at in range(progress["done"], len(plan.portions)):
            began = time.monotonic()
            rows = chosen(source, plan.portions[at], plan.size)
            if progress.get("begun") == at:
                rows = without(rows, self._since(rows, progress["ends"]), self.name)
            else:
                progress = {"done": at, "begun": at, "ends": self._ends(source.sparkSession)}
                self._note_progress(progress)
            count = rows.count()
            write_records(again(rows, self.name), self._target, self._place)
            written += count
            progress = {"done": at + 1}
            self._note_progress(progress)
            self._note(f"portion {at + 1} of {len(plan.portions)} done, {written:,} messages")
            if rate is not None:
                time.sleep(max(0.0, count / rate - (time.monotonic() - began)))
        return plan, written

    def _plan(self, source: DataFrame, rate: float | None) -> Plan:
        told = self._state.read(_PLAN)
        if told is None:
            plan = planned(source, rate)
            self._state.create(_PLAN, json.dumps([plan.size, plan.total, plan.portions]))
            return plan
        size, total, portions = json.loads(told)
        return Plan(
            size, total, [[(topic, number, block) for topic, number, block in each] for each in portions]
        )

    def _progress(self) -> dict[str, Any]:
        """The last note. Each is a file of its own: one that is replaced is gone for a moment."""
        names = [name for name in self._state.names(_PROGRESS) if name.endswith(".json")]
        self._notes = int(names[-1].removesuffix(".json")) if names else 0
        found: dict[str, Any] = (
            json.loads(self._state.read(f"{_PROGRESS}/{names[-1]}") or "") if names else {"done": 0}
        )
        return found

    def _note_progress(self, progress: dict[str, Any]) -> None:
        self._notes += 1
        self._state.create(f"{_PROGRESS}/{self._notes:09d}.json", json.dumps(progress))
        self._state.delete(f"{_PROGRESS}/{self._notes - 1:09d}.json")

    def _ends(self, spark: SparkSession) -> dict[str, int]:
        with Cluster(spark, self._place) as cluster:
            return {str(at.partition): end for at, end in cluster.ends([self._target]).items()}

    def _since(self, rows: DataFrame, ends: Mapping[str, Any]) -> DataFrame:
        return messages(
            rows.sparkSession,
            self._target,
            bootstrap=self._place.bootstrap,
            config=self._place.config,
            starting={self._target: {int(number): end for number, end in ends.items()}},
        )
