"""Debian's Prometheus scrapes a real run: each alert fires for its fault and not before, and each panel has data.

The rules are those of `deploy/observe`, with shorter times, so that this takes a minute and not an hour.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_pubsub import DeadLetterPolicy, PubSub
from kafka_pubsub.local import LocalKafka
from kafka_pubsub.local.tcp_ports import free_ports
from tests.prometheus import MISSING, OBSERVE, Prometheus, quickened, there

pytestmark = pytest.mark.skipif(not there(), reason=MISSING)

SHOP = """
from kafka_pubsub import App, DeadLetter, Message
app = App()
@app.subscriber("billing", topic="orders", to="invoices", ensure="never")
def charge(message: Message) -> dict:
    if message.data == b"bad":
        raise DeadLetter("not an order")
    if message.data == b"again" and message.delivery_attempt == 1:
        message.nack()
    return {"total": 12}
@app.subscriber("parking", topic="parked", ensure="never")
def park(message: Message) -> None:
    if message.data == b"bad":
        raise DeadLetter("not an order")
"""
#: Long enough for a run without faults to stay below on a busy machine.
QUICK = {
    "for: 1m": "for: 1s",
    "for: 20s": "for: 1s",
    "for: 30s": "for: 1s",
    "_seconds > 300": "_seconds > 10",
    "overdue_seconds) > 60": "overdue_seconds) > 5",
    "transaction_seconds) > 60": "transaction_seconds) > 5",
    "block_age_seconds) > 60": "block_age_seconds) > 5",
    "view_age_seconds) > 60": "view_age_seconds) > 12",
}
#: Seconds for an alert. With the real times it is the `for` of the rule more.
SOON = 60.0


class Run:
    """The processes of one run: an app, both services, and what asks Kafka."""

    def __init__(self, bootstrap: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self._bootstrap, self._folder, self._stack = bootstrap, folder, stack
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        self.ports = dict(zip(("app", "router", "sequencer", "kafka"), free_ports(4), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_pubsub", *command, "--http", str(self.ports[name])],
            cwd=self._folder,
            env={**os.environ, "KAFKA_PUBSUB_BOOTSTRAP": self._bootstrap},
            stdout=log,
            stderr=log,
        )
        self._stack.callback(_end, process)
        self.processes[name] = process

    def text(self, name: str) -> str:
        url = f"http://127.0.0.1:{self.ports[name]}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until(good: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if good():
                return
        assert time.monotonic() < end, what
        time.sleep(0.3)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_each_alert_fires_for_its_fault_and_each_panel_has_data(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    kafka = stack.enter_context(LocalKafka())
    ps = stack.enter_context(PubSub(kafka.bootstrap))
    run = Run(kafka.bootstrap, tmp_path, stack)
    _make(ps)
    run.start("app", "run", "shop:app", "--workers", "2")
    run.start("router", "service", "router", "--partitions", "1", "--tiers", "12")
    run.start("sequencer", "service", "sequencer")
    run.start("kafka", "metrics")
    (port,) = free_ports(1)
    targets = [f"127.0.0.1:{each}" for each in run.ports.values()]
    prometheus = stack.enter_context(Prometheus(tmp_path, port, targets, quickened(QUICK)))
    _until(lambda: 'kafka_pubsub_up{unit="app"} 2.0' in run.text("app"), "both processes of the app")
    _until(lambda: "kafka_pubsub_routers 1.0" in run.text("kafka"), "a router")
    _until(lambda: "kafka_pubsub_sequencers 1.0" in run.text("kafka"), "a sequencer")
    _flow(ps)
    _until(lambda: prometheus.query("sum(kafka_pubsub_acked_total) > 100"), "acks")
    for name in run.ports:
        _check(run.text(name))
    assert prometheus.firing() == set()

    fired: set[str] = set()
    for alert, fault in _faults(ps, run, stack):
        assert alert not in prometheus.firing(), f"{alert} fires before its fault"
        fault()
        prometheus.wait_for(alert, SOON)
        fired.add(alert)
        if len(fired) == 2:
            _flow(ps)
    _check_panels(prometheus)
    assert "KafkaPubSubBlind" not in prometheus.firing()
    kafka.close()
    prometheus.wait_for("KafkaPubSubBlind", SOON)
    # A scrape waits for no broker.
    began = time.monotonic()
    assert "kafka_pubsub_view_age_seconds" in run.text("kafka")
    assert time.monotonic() - began < 5
    assert "KafkaPubSubUnwatched" not in prometheus.firing()
    _end(run.processes["kafka"])
    prometheus.wait_for("KafkaPubSubUnwatched", SOON)


def _make(ps: PubSub) -> None:
    for name in ("orders", "parked"):
        ps.create_topic(name, partitions=4, message_ordering=True)
    ps.create_topic("dead", partitions=1)
    ps.create_topic("invoices", partitions=1)
    ps.create_topic("short", partitions=1, retention=15)
    ps.create_topic("mail", partitions=1)
    ps.create_topic("chat", causal=True)
    ps.create_subscription(
        "billing",
        topic="orders",
        message_ordering=True,
        dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
    )
    park = DeadLetterPolicy(topic="dead", max_attempts=5, on_exhausted="park")
    ps.create_subscription("parking", topic="parked", message_ordering=True, dead_letter=park)
    ps.create_subscription("archive", topic="short")
    ps.create_subscription("mailing", topic="mail")


def _flow(ps: PubSub) -> None:
    """Publishes messages that nothing is wrong with, of every kind."""
    orders = ps.topic("orders")
    orders.publish_many({"data": b"x", "ordering_key": f"user-{n % 50}"} for n in range(1000)).result(30)
    orders.publish(b"again", ordering_key="user-again").result(30)
    orders.publish(b"x", delay=1.0).result(30)
    ps.publish_multi(["chat"], b"hello").result(30)


def _faults(ps: PubSub, run: Run, stack: contextlib.ExitStack) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields each alert with its fault, in an order in which none causes a later one."""
    yield "KafkaPubSubKeyBlocked", lambda: ps.topic("parked").publish(b"bad", ordering_key="k").result(30)
    yield (
        "KafkaPubSubDeadLettersGrow",
        lambda: ps.topic("orders").publish(b"bad", ordering_key="k").result(30),
    )
    yield "KafkaPubSubStopped", lambda: ps.topic("mail").publish(b"nothing receives it").result(30)
    yield "KafkaPubSubBehind", lambda: None  # that message grows old
    yield "KafkaPubSubNearRetention", lambda: ps.topic("short").publish(b"x").result(30)
    yield "KafkaPubSubHangingTransaction", lambda: _hang(ps, stack)
    yield "KafkaPubSubServiceMissing", lambda: _stop_router(ps, run)
    yield "KafkaPubSubDelaysOverdue", lambda: None  # the delayed message becomes due
    yield "KafkaPubSubCausalBlocked", lambda: _stop_sequencer(ps, run)


def _stop_router(ps: PubSub, run: Run) -> None:
    ps.topic("orders").publish(b"x", delay=3.0).result(30)
    _end(run.processes["router"])


def _stop_sequencer(ps: PubSub, run: Run) -> None:
    _end(run.processes["sequencer"])
    ps.publish_multi(["chat"], b"nothing delivers it")


def _hang(ps: PubSub, stack: contextlib.ExitStack) -> None:
    """Begins a transaction in a retry topic, as a program of others might, and doesn't end it."""
    settings = {
        "bootstrap.servers": ps._where,
        "transactional.id": "foreign",
        "transaction.timeout.ms": 300_000,
    }
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders.sub.billing.retry", b"x", partition=0)
    producer.flush(30)
    stack.callback(lambda: producer)  # lives until the end


def _check(text: str) -> None:
    """Holds a scrape against promtool, which is content with nothing."""
    assert "kafka_pubsub_" in text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _check_panels(prometheus: Prometheus) -> None:
    dashboard = json.loads((OBSERVE / "dashboard.json").read_text(encoding="utf-8"))
    empty = [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
        if not prometheus.query(target["expr"].replace("$subscription", ".*"))
    ]
    assert empty == []
