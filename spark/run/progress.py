"""Reports the progress of a streaming job's batches, from Spark's own reports: as lines, a table and metrics.

Theory. Spark makes one report for each batch (`StreamingQueryProgress`, which its listeners get and its queries keep).
Only these reports say how far away the log's end is; Spark's metrics don't. So `Gauges` adds these figures to Spark's
metrics, and Spark's own sinks publish them, the one for Prometheus among them.

Rules
1. A job that follows a topic for months keeps the last `KEPT` batches, and sums of the others.
2. Spark 4.1 says neither where a batch ended nor where the log does. `behind` is None then, and `streams.py` takes the
   one from Spark's log and asks the cluster for the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.spark_session import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "KEPT",
    "METRICS_PATH",
    "Gauges",
    "History",
    "Progress",
    "metrics_conf",
    "progress_of",
]

#: How many batches the table at the end shows.
KEPT = 20
METRICS_PATH = "/metrics/prometheus"
_SINK = "spark.metrics.conf.*.sink.prometheusServlet"


class Progress(NamedTuple):
    """The figures of a batch. `behind` counts the messages between its end and the log's; None if Spark doesn't say."""

    rows: int
    rows_per_s: float
    behind: int | None

    def __str__(self) -> str:
        lag = "" if self.behind is None else f", {self.behind:,} behind the log's end"
        return f"{self.rows:,} messages read, {self.rows_per_s:,.0f} a second{lag}"

    @property
    def seconds(self) -> float:
        """How many seconds the batch took, by its rate."""
        return self.rows / self.rows_per_s if self.rows_per_s else 0.0


_NOTHING = Progress(0, 0.0, None)


class History:
    """The progress of all batches of one start."""

    def __init__(self) -> None:
        self._last: dict[int, Progress] = {}
        self._earlier = _NOTHING
        self._earlier_seconds = 0.0
        self._forgotten = -1

    def is_new(self, number: int, found: Progress) -> bool:
        """Returns whether a report of a batch says more than the last one.

        While no messages come, Spark reports the last batch again, with fewer rows.
        """
        known = self._last.get(number, _NOTHING)
        return number > self._forgotten and found.rows > known.rows

    def take(self, number: int, found: Progress) -> None:
        """Notes a report of a batch."""
        self._last[number] = found
        while len(self._last) > KEPT:
            self._forget(min(self._last))

    def _forget(self, number: int) -> None:
        gone = self._last.pop(number)
        self._forgotten = number
        self._earlier_seconds += gone.seconds
        was = self._earlier
        self._earlier = Progress(was.rows + gone.rows, 0.0, None)

    def total(self) -> Progress:
        """Returns the sums of all batches, their mean rate, and how far away the log's end was at last."""
        every = self._last.values()
        rows = self._earlier.rows + sum(each.rows for each in every)
        seconds = self._earlier_seconds + sum(each.seconds for each in every)
        behind = self._last[max(self._last)].behind if self._last else None
        return Progress(rows, rows / seconds if seconds else 0.0, behind)

    def facts(self) -> list[dict[str, Any]]:
        """Returns the last batches for JSON."""
        return [
            {
                "batch": number,
                "messages_read": each.rows,
                "messages_per_s": round(each.rows_per_s, 1),
                "behind": each.behind,
            }
            for number, each in sorted(self._last.items())
        ]

    def table(self) -> str:
        """Returns a table of the last batches and the sum of all; empty if there was no batch."""
        if not self._last:
            return ""
        lines: list[tuple[str, ...]] = [("batch", "read", "a second", "behind")]
        if self._earlier.rows:
            lines.append(("earlier", f"{self._earlier.rows:,}", "", ""))
        lines += [_line(str(number), each) for number, each in sorted(self._last.items())]
        lines.append(_line("all", self.total()))
        return "\n".join("".join(f"{cell:>14}" for cell in line) for line in lines)


def _line(name: str, found: Progress) -> tuple[str, ...]:
    behind = "" if found.behind is None else f"{found.behind:,}"
    return (name, f"{found.rows:,}", f"{found.rows_per_s:,.0f}", behind)


def progress_of(told: Any) -> Progress:
    """Reads the figures from one of Spark's reports."""
    behind = [found for each in told["sources"] if (found := _behind(each)) is not None]
    rows, rate = (
        sum(float(each[name] or 0) for each in told["sources"])
        for name in ("numInputRows", "processedRowsPerSecond")
    )
    return Progress(int(rows), rate, sum(behind) if behind else None)


def _behind(source: Any) -> int | None:
    """Counts the messages between a source's end of the batch and the log's end; None if Spark doesn't say."""
    latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    return sum(latest.values()) - sum(end.get(at, 0) for at in latest) if latest else None


def _offsets(told: str | None) -> dict[tuple[str, str], int]:
    """Reads a source's offsets by topic and partition; empty if Spark doesn't say."""
    try:
        found = json.loads(told) if told else {}
        return {(topic, at): int(offset) for topic, each in found.items() for at, offset in each.items()}
    except (ValueError, AttributeError):
        return {}


def metrics_conf(port: int) -> Mapping[str, str]:
    """Returns the settings by which Spark serves its metrics in Prometheus' format on this port, at `METRICS_PATH`."""
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        # With this, Spark doesn't take the next free port, which no Prometheus would ask.
        "spark.port.maxRetries": "0",
        "spark.metrics.namespace": "kafka_pubsub",
        "spark.sql.streaming.metricsEnabled": "true",
        f"{_SINK}.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        f"{_SINK}.path": METRICS_PATH,
    }


class Gauges:
    """A job's figures among Spark's metrics. They are accumulators, which Spark publishes by name."""

    def __init__(self, spark: SparkSession, job: str) -> None:
        java, context = jvm(spark), spark.sparkContext
        self._values = _REGISTERED.get((context.applicationId, job), {})
        if self._values:
            return
        scala = context._jsc.sc()
        for name in ("messages_read", "messages_per_second", "behind"):
            self._values[name] = scala.longAccumulator(f"{job}_{name}")
        named = java.java.util.HashMap()
        for name, value in self._values.items():
            named[f"{job}_{name}"] = value
        # This is a Scala object, and Java finds its only instance by this name.
        source = getattr(java, "org.apache.spark.metrics.source.LongAccumulatorSource$")
        getattr(source, "MODULE$").register(
            scala, java.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
        )
        _REGISTERED[context.applicationId, job] = self._values

    def show(self, last: Progress, total: Progress) -> None:
        """Sets the sums so far, and of the last batch its rate and how far away the log's end was."""
        self._values["messages_read"].setValue(total.rows)
        self._values["messages_per_second"].setValue(round(last.rows_per_s))
        if last.behind is not None:
            self._values["behind"].setValue(last.behind)


#: The accumulators by application and job: Spark registers a name only once.
_REGISTERED: dict[tuple[str, str], dict[str, Any]] = {}
