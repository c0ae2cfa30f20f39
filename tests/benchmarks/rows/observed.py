"""Publishing and pulling while the figures are scraped, with OpenTelemetry, and how long a scrape and an alert take."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_pubsub import Message, PubSub
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured, Missing
from tests.benchmarks.rows import ours

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = [
    "alert",
    "publish",
    "publish_scraped",
    "publish_with_api",
    "pull_scraped",
    "pull_with_api",
    "scrape",
    "spans",
]

#: Topics of the wide scrape.
WIDE = 10
#: Scrapes its process's parent each second, as Prometheus does from another process.
_SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    print("scraped", flush=True)
    time.sleep(1)
"""


@contextlib.contextmanager
def _scraped() -> Iterator[None]:
    from prometheus_client import REGISTRY, start_http_server

    from kafka_pubsub.observe.metrics import register

    collector = register()
    server, thread = start_http_server(0, "127.0.0.1")
    address = f"http://127.0.0.1:{server.server_port}/metrics"
    scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, address], stdout=subprocess.PIPE)
    assert scraper.stdout is not None
    scraper.stdout.readline()  # its start isn't measured
    try:
        yield
    finally:
        scraper.kill()
        scraper.wait()
        server.shutdown()
        thread.join()
        REGISTRY.unregister(collector)


def pull_scraped(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    """The plain pull, registered and scraped each second."""
    with _scraped():
        return ours.pull(bootstrap, topic, group, warmup, measured, patience)


def publish(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """The plain publish, into a topic of its own: the others pull what was filled."""
    return ours.publish(bootstrap, _beside(bootstrap, topic), warmup, measured, distinct)


def publish_scraped(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """The plain publish, registered and scraped each second."""
    with _scraped():
        return publish(bootstrap, topic, warmup, measured, distinct)


def pull_with_api(
    bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float
) -> Measured:
    """The plain pull, instrumented while no SDK is set."""
    _instrument(None)
    return ours.pull(bootstrap, topic, group, warmup, measured, patience)


def publish_with_api(bootstrap: str, topic: str, warmup: int, measured: int, distinct: int) -> Measured:
    """The plain publish, instrumented while no SDK is set."""
    _instrument(None)
    return publish(bootstrap, topic, warmup, measured, distinct)


def _beside(bootstrap: str, topic: str) -> str:
    """Makes another topic; returns its name."""
    name = f"{topic}-beside"
    with PubSub(bootstrap) as pubsub:
        pubsub.create_topic(name, partitions=8, message_ordering=True, exist_ok=True)
    return name


def _instrument(provider: TracerProvider | None) -> None:
    from kafka_pubsub.observe.tracing import instrument

    instrument(provider)


def spans(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """What spans add to a message, sent and handled, with an exporter that does nothing."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    except ImportError as error:
        raise Missing(f"pip install opentelemetry-sdk ({error})") from error

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    from kafka_pubsub.observe.tracing import uninstrument

    other = f"{topic}-{group}"
    with PubSub(bootstrap) as pubsub:
        pubsub.create_topic(other, partitions=8, message_ordering=True)
        pubsub.create_subscription(f"{group}-spans", topic=other, message_ordering=True)

    def both() -> tuple[float, float]:
        sent = ours.publish(bootstrap, other, warmup, measured, 1000)
        meter = Meter(warmup, measured)

        def handle(message: Message) -> None:
            message.ack()
            meter.one()

        with PubSub(bootstrap) as pubsub:
            stream = pubsub.subscription(f"{group}-spans").pull(handle)
            rate = meter.wait(patience)
            stream.close(timeout=60)
        return 1e6 / float(sent["rate"]), 1e6 / rate

    send, process = both()
    provider = TracerProvider()
    # Not in batches: at this rate their queue would overflow, and the warnings about it would be measured.
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    _instrument(provider)
    traced_send, traced_process = both()
    uninstrument()
    provider.shutdown()
    return {"send_us": traced_send - send, "process_us": traced_process - process}


def scrape(bootstrap: str, topic: str, partitions: int, scrapes: int) -> Measured:
    """A scrape of a process that holds many partitions, as the registry writes it."""
    from prometheus_client import CollectorRegistry, generate_latest

    from kafka_pubsub.observe.metrics import register

    registry = CollectorRegistry()
    register(registry)
    # Several topics: a broker of one machine makes only so many partitions within the time of one request.
    names = [f"{topic}-{os.getpid()}-{number}" for number in range(WIDE)]
    with PubSub(bootstrap) as pubsub, contextlib.ExitStack() as stack:
        streams = []
        for name in names:
            pubsub.create_topic(name, partitions=partitions // WIDE)
            sub = pubsub.create_subscription(f"{name}-all", topic=name)
            streams.append(stack.enter_context(sub.pull(lambda message: message.ack())))
        held = partitions // WIDE * WIDE
        _until(lambda: sum(len(each.stats.partitions) for each in streams) == held, 240, "partitions")
        generate_latest(registry)  # the first one waits for Kafka's answers
        seconds = []
        for _ in range(scrapes):
            began = time.perf_counter()
            generate_latest(registry)
            seconds.append(time.perf_counter() - began)
            time.sleep(0.1)
    return {"scrape_ms": 1000 * statistics.median(seconds), "note": f"longest {1000 * max(seconds):.0f} ms"}


def alert(bootstrap: str, topic: str, group: str) -> Measured:
    """From the death of the only process that receives to the alert, with the rules as they are."""
    from tests.prometheus import MISSING, Prometheus, quickened, there

    if not there():
        raise Missing(MISSING.partition(": ")[2])
    from kafka_pubsub.local.tcp_ports import free_ports

    topic, group = f"{topic}-{group}-alert", f"{group}-alert"
    env = {**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": bootstrap}
    exporter_port, port = free_ports(2)
    command = [sys.executable, "-m", "kafka_pubsub"]
    ended = threading.Event()

    def publish(pubsub: PubSub) -> None:
        while not ended.wait(0.5):
            pubsub.topic(topic).publish(b"x").result(30)

    with (
        tempfile.TemporaryDirectory() as folder,
        PubSub(bootstrap) as pubsub,
        Prometheus(Path(folder), port, [f"127.0.0.1:{exporter_port}"], quickened({}), "10s") as prometheus,
    ):
        pubsub.create_topic(topic)
        pubsub.create_subscription(group, topic=topic)
        exporter = subprocess.Popen([*command, "metrics", "--http", str(exporter_port)], env=env)
        puller = subprocess.Popen(
            [*command, "pull", group, "--ack", "--follow"], env=env, stdout=subprocess.DEVNULL
        )
        publisher = threading.Thread(target=publish, args=(pubsub,))
        publisher.start()
        try:
            _until(
                lambda: bool(prometheus.query(f'kafka_pubsub_members{{subscription="{group}"}} == 1')),
                120,
                "it",
            )
            if prometheus.firing():
                raise RuntimeError(f"alerts before the fault: {prometheus.firing()}")
            puller.kill()
            return {"alert_s": prometheus.wait_for("KafkaPubSubStopped", 180)}
        finally:
            ended.set()
            publisher.join()
            for each in (puller, exporter):
                each.kill()
                each.wait()


def _until(good: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not good():
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} within {seconds:g} s")
        time.sleep(0.2)
