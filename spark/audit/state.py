"""Keeps for the next audit how far this one came, what it found, and each key's last number.

Theory. There are two Delta tables. The first one has a row for each finding, and a row with `progress` (JSON) for each
audit that ended. An audit writes all its rows in one commit, so it has ended or it hasn't. The second table has the
highest number of each key, for --sequence. An audit writes it first, and its row of progress names the version that it
wrote. If an audit fails in between, its numbers are in a later version, and the next audit replaces them. Otherwise an
audit adds the numbers of the keys that it has seen, which is quicker than an update; a key's highest number counts.

Rules
1. The next audit begins where the last one ended only if the kept data is enough to check what came since. Otherwise
   `restart` says why not, and everything is read again.
2. A number that an earlier audit has seen counts as a reorder, whichever message had it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as F

from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.lane_names import every_name
from kafka_pubsub.model import TopicPartition

from ..base.tables import Layout, Table
from .order import highest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["AuditState"]

_AUDITS = Layout("audits", partitions=("topic",), statistics=("run", "kind", "partition", "offset"))
_NUMBERS = Layout("numbers of keys", partitions=("topic",), statistics=("number",))
_PROGRESS = "progress"
_COLUMNS = (
    "topic string, run int, at timestamp, step string, kind string, partition int, offset bigint, key string, "
    "said string, progress string"
)
#: After so many audits small files are put together and replaced files deleted.
_CLEANED = 50


class AuditState:
    """The tables in which the audits of one topic keep their state."""

    def __init__(self, spark: SparkSession, where: str, topic: str) -> None:
        self._spark = spark
        self._topic = topic
        self._table = Table(spark, where, _AUDITS, option="--state")
        self._numbers = self._table.beside("numbers", _NUMBERS)
        for table in (self._table, self._numbers):
            table.check()
        #: When the last audit ended (ISO 8601, UTC).
        self.last_at = ""
        self.last = self._last()
        #: The number of this audit; the first one is 0.
        self.run = 0 if self.last is None else int(self.last["run"]) + 1

    @property
    def _mine(self) -> Column:
        """Whether a row is of the topic or of one of its lanes."""
        return F.col("topic").isin(every_name(self._topic))

    def _rows(self) -> DataFrame:
        return self._table.read().where(self._mine)

    def _last(self) -> dict[str, Any] | None:
        if self._table.query() is None:
            return None
        ended = self._rows().where(F.col("kind") == _PROGRESS)
        # The time is read as a number, because Spark would give a timestamp the driver's time zone.
        at = F.unix_seconds("at").alias("at")
        rows = ended.orderBy(F.col("run").desc()).select("run", at, "progress").limit(1).collect()
        if not rows:
            return None
        self.last_at = datetime.fromtimestamp(rows[0].at, UTC).isoformat()
        return {**json.loads(rows[0].progress), "run": rows[0].run}

    def restart(self, now: Mapping[str, Any], beginnings: Mapping[TopicPartition, int]) -> str | None:
        """Returns why everything must be read again; None if this audit may begin where the last one ended."""
        if self.last is None:
            return "no audit of this topic is kept"
        if "topic_ids" not in self.last:
            return "an earlier version of kafka_pubsub kept it"
        if any(now["topic_ids"].get(topic) != told for topic, told in self.last["topic_ids"].items()):
            return "the topic was made again"
        if self.last["partitions"] != now["partitions"]:
            return "the topic has more partitions"
        if self.last["sequence"] != now["sequence"]:
            return "--sequence is another one"
        ends = self.ends()
        if any(ends.get(at, 0) < first for at, first in beginnings.items()):
            return "messages were deleted that no audit has seen"
        return None

    def ends(self) -> dict[TopicPartition, int]:
        """Returns the offset of each partition at which the last audit ended."""
        return _flat((self.last or {}).get("ends", {}))

    def archived(self, address: str) -> dict[TopicPartition, int]:
        """Returns the offset of each partition up to which this archive was compared."""
        told = (self.last or {}).get("archive") or {}
        return _flat(told.get("reached", {})) if told.get("address") == address else {}

    def numbers(self) -> DataFrame | None:
        """Returns each key's highest number, topic and partition, as of the last audit that ended; None: none."""
        version = (self.last or {}).get("numbers")
        if version is None:
            return None
        return highest(self._numbers.read(version=version).where(self._mine))

    def earlier(self) -> dict[str, int]:
        """Counts the findings of earlier audits by kind."""
        if self._table.query() is None:
            return {}
        found = self._rows().where(F.col("kind") != _PROGRESS).groupBy("kind").count().collect()
        return {row.kind: row["count"] for row in sorted(found, key=lambda row: str(row.kind))}

    def keep(
        self,
        progress: Mapping[str, Any],
        findings: Sequence[Mapping[str, Any]],
        numbers: DataFrame | None,
        *,
        whole: bool,
    ) -> None:
        """Stores an audit that ended; `whole` says that it didn't go on from an earlier one."""
        version = None if numbers is None else self._keep_numbers(numbers, whole)
        now = datetime.now(UTC)
        common = {"topic": self._topic, "run": self.run, "at": now}
        told = json.dumps({**progress, "numbers": version})
        rows = [{**common, "kind": _PROGRESS, "progress": told}, *({**common, **each} for each in findings)]
        names = [each.split()[0] for each in _COLUMNS.split(", ")]
        frame = self._spark.createDataFrame(
            [tuple(row.get(name) for name in names) for row in rows], _COLUMNS
        )
        note = uuid4().hex
        self._table.append(frame.coalesce(1), f"audit of {self._topic}", self.run, note=note)
        if note not in self._table.notes():
            raise FailedPrecondition(
                f"another audit of {self._topic} has ended meanwhile with the same --state; this one isn't kept there"
            )
        if self._is_cleaned:
            for table in (self._table, self._numbers):
                table.optimize(lambda _: None)
                table.vacuum(lambda _: None)

    @property
    def _is_cleaned(self) -> bool:
        return (self.run + 1) % _CLEANED == 0

    def _keep_numbers(self, numbers: DataFrame, whole: bool) -> int:
        known, query = None if whole else self.numbers(), f"audit of {self._topic}"
        # If the version isn't the last audit's, the table has rows of another topic or of an audit that didn't end.
        if known is None or self._is_cleaned or self._numbers.version() != (self.last or {}).get("numbers"):
            rows = numbers if known is None else highest(known.unionByName(numbers))
            names = ", ".join(f"'{name}'" for name in every_name(self._topic))
            self._numbers.replace(rows, f"topic IN ({names})", query)
        else:
            self._numbers.add(numbers, query)
        return self._numbers.version()


def _flat(told: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Reads offsets from JSON, where they are grouped by topic."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, each in told.items()
        for number, offset in each.items()
    }
