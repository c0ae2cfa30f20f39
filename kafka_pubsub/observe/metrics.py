"""Metrics for Prometheus, read from the parts of this process when they are scraped (extra `metrics`).

Theory. The parts count by themselves (`counters.py`), whether or not anything is registered. A collector asks them at
the scrape, and adds what Kafka told last (`kafka_view.py`). So a message costs nothing more.

Rule: a scrape waits for no broker, and a part that can't be read doesn't take the others with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from kafka_pubsub.counters import BOUNDS, PARTS, Reading, Times, merged
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.observe.names import HIGHEST, METRICS, PREFIX, Metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

__all__ = ["Collector", "Exposition", "decode", "encode", "exposition", "process_readings", "register"]

#: A content type and a body.
Exposition = tuple[str, bytes]


class Collector:
    """Gives a registry of prometheus-client the figures of this process.

    `read` returns the readings at a scrape.
    """

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        """Yields all metrics that have a figure."""
        readings = merged(self._read(), HIGHEST)
        for metric in METRICS:
            family = _family(metric, readings)
            if family is not None:
                yield family

    def describe(self) -> list[Family]:
        """Returns nothing, so that registering reads no figures."""
        return []


def register(registry: CollectorRegistry | None = None) -> Collector:
    """Registers the figures of this process for scrapes; returns the collector, which `registry.unregister` takes.

    `registry`: that of prometheus-client to which they are added; None, the default, is its own `REGISTRY`, which
    `start_http_server` and most integrations serve. Register once in a process: the registry refuses nothing, and a
    second time would make each figure appear twice.

    The figures are those of all `PubSub`s of the process, also of those that are made later. For the subscriptions from
    which it receives, Kafka is asked every 5 seconds while scrapes come, on a thread of its own.
    """
    client = _client()
    collector = Collector(process_readings())
    (client.REGISTRY if registry is None else registry).register(collector)
    return collector


def process_readings(*, everything: bool = False) -> Callable[[], list[Reading]]:
    """Returns what reads all figures of this process, and what Kafka knows.

    `everything`: of all subscriptions and services of the cluster, and not only of the subscriptions in use here.
    """
    from kafka_pubsub.observe.kafka_view import KafkaView

    view = KafkaView(everything=everything)
    return lambda: [*PARTS.read(), *view.readings()]


def exposition(readings: Iterable[Reading], accept: str = "") -> Exposition:
    """Returns readings in the format that a scrape accepts."""
    client = _client()
    from prometheus_client.exposition import choose_encoder

    registry = client.CollectorRegistry()
    registry.register(Collector(lambda: readings))
    write, content_type = choose_encoder(accept)
    return content_type, write(registry)


def encode(readings: Iterable[Reading]) -> bytes:
    """Returns readings as a line of JSON, for another process."""
    return json.dumps([asdict(each) for each in readings]).encode() + b"\n"


def decode(line: bytes) -> list[Reading]:
    """Returns the readings that `encode` wrote."""
    return [
        Reading(
            each["labels"],
            each["counts"],
            each["gauges"],
            {name: Times(**times) for name, times in each["times"].items()},
        )
        for each in json.loads(line)
    ]


def _client() -> _Client:
    try:
        import prometheus_client
    except ImportError:
        raise FailedPrecondition(
            "metrics need prometheus-client: pip install 'kafka-pubsub-orderly[metrics]'"
        ) from None
    return cast("_Client", prometheus_client)


class _Client:
    """The part of prometheus-client that is used."""

    REGISTRY: CollectorRegistry
    CollectorRegistry: Callable[[], CollectorRegistry]


def _family(metric: Metric, readings: Sequence[Reading]) -> Family | None:
    from prometheus_client import metrics_core

    name, labels = PREFIX + metric.name, list(metric.labels)
    found = [(each, labels_of) for each in readings if (labels_of := _labels(metric, each)) is not None]
    if not found:
        return None
    if metric.kind == "histogram":
        histogram = metrics_core.HistogramMetricFamily(name, metric.meaning, labels=labels)
        for each, values in found:
            histogram.add_metric(values, _buckets(each.times[metric.field]), each.times[metric.field].seconds)
        return histogram
    family: metrics_core.GaugeMetricFamily | metrics_core.CounterMetricFamily
    family = metrics_core.GaugeMetricFamily(name, metric.meaning, labels=labels)
    if metric.kind == "counter":
        family = metrics_core.CounterMetricFamily(name, metric.meaning, labels=labels)
    for each, values in found:
        family.add_metric(values, _figures(metric, each)[metric.field])
    return family


def _figures(metric: Metric, reading: Reading) -> Mapping[str, float]:
    return reading.counts if metric.kind == "counter" else reading.gauges


def _labels(metric: Metric, reading: Reading) -> list[str] | None:
    """Returns the values of the metric's labels; None: the reading has no figure of it."""
    there = reading.times if metric.kind == "histogram" else _figures(metric, reading)
    if metric.field not in there or set(reading.labels) != set(metric.labels):
        return None
    return [reading.labels[label] for label in metric.labels]


def _buckets(times: Times) -> list[tuple[str, float]]:
    """Returns the ranges as Prometheus has them: each holds those below it as well."""
    rows, total = list[tuple[str, float]](), 0
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], times.counts, strict=True):
        total += count
        rows.append((bound, total))
    return rows
