"""The figures of a process as Prometheus reads them: names, sums, and a scrape that waits for nothing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kafka_pubsub import DeadLetterPolicy, Message, PubSub, Stream, Subscription
from kafka_pubsub.counters import Parts
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.handlers.lifespan import LoopThread
from kafka_pubsub.observe import metrics
from kafka_pubsub.observe.kafka_view import KafkaView
from kafka_pubsub.observe.names import METRICS
from tests.support import until

#: The names of the design, which users' dashboards rely on.
PUBLIC = {
    "kafka_pubsub_published_total",
    "kafka_pubsub_publish_failed_total",
    "kafka_pubsub_received_total",
    "kafka_pubsub_acked_total",
    "kafka_pubsub_redelivered_total",
    "kafka_pubsub_dead_lettered_total",
    "kafka_pubsub_stale_acks_total",
    "kafka_pubsub_in_flight",
    "kafka_pubsub_blocked_keys",
    "kafka_pubsub_lag",
    "kafka_pubsub_oldest_age_seconds",
    "kafka_pubsub_callback_seconds_count",
    "kafka_pubsub_publish_seconds_count",
}


class Scrapes:
    """Scrapes of one process."""

    def __init__(self, registry: CollectorRegistry, parts: Parts) -> None:
        self.registry, self.parts = registry, parts

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def names(self) -> set[str]:
        return {sample.name for family in self.registry.collect() for sample in family.samples}


@pytest.fixture
def scrapes(monkeypatch: pytest.MonkeyPatch) -> Scrapes:
    """Scrapes of a process that has no other parts than those of this test."""
    parts = Parts()
    for module in (
        "observe.metrics",
        "subscriber",
        "lanes.home_publisher",
        "publish.publisher",
        "delays.publisher",
    ):
        monkeypatch.setattr(f"kafka_pubsub.{module}.PARTS", parts)
    registry = CollectorRegistry()
    metrics.register(registry)
    return Scrapes(registry, parts)


def test_what_a_process_does_is_counted_under_the_public_names(scrapes: Scrapes) -> None:
    with PubSub.in_memory() as ps:
        orders = ps.create_topic("orders", message_ordering=True)
        ps.create_topic("dead")
        sub = ps.create_subscription(
            "billing",
            topic="orders",
            message_ordering=True,
            dead_letter=DeadLetterPolicy(topic="dead", max_attempts=5),
        )

        def handle(message: Message) -> None:
            if message.data == b"bad":
                message.dead_letter("not an order")
            elif message.data == b"late" and message.delivery_attempt == 1:
                message.nack()
            else:
                message.ack()
                message.ack()

        for body in (b"good", b"bad", b"late"):
            orders.publish(body, ordering_key=body.decode()).result(10)
        of = {"subscription": "billing", "topic": "orders"}
        with sub.pull(handle):
            until(lambda: scrapes.value("kafka_pubsub_dead_lettered_total", **of) == 1)
            until(lambda: scrapes.value("kafka_pubsub_redelivered_total", **of) == 1)
            until(lambda: scrapes.value("kafka_pubsub_stale_acks_total", **of) == 2)
            until(lambda: scrapes.value("kafka_pubsub_lag", **of) is not None)
            assert (
                scrapes.names() | {"kafka_pubsub_blocked_keys", "kafka_pubsub_oldest_age_seconds"} >= PUBLIC
            )
            assert scrapes.value("kafka_pubsub_members", **of) == 1
        assert scrapes.value("kafka_pubsub_published_total", topic="orders") == 3
        assert scrapes.value("kafka_pubsub_publish_failed_total", topic="orders") == 0
        assert scrapes.value("kafka_pubsub_received_total", **of) == 3
        assert scrapes.value("kafka_pubsub_moved_total", **of) == 2
        assert scrapes.value("kafka_pubsub_callback_seconds_count", **of) == 4
        assert scrapes.value("kafka_pubsub_dead_letters_by_reason_total", **of, reason="rejected") == 1
    # A sum that fell at a close would look like a restart.
    assert scrapes.value("kafka_pubsub_received_total", **of) == 3
    assert scrapes.value("kafka_pubsub_published_total", topic="orders") == 3
    assert scrapes.value("kafka_pubsub_in_flight", **of) is None


@pytest.mark.parametrize("kind", ["threads", "executor", "batch", "coroutine"])
def test_each_callback_counts_once_whatever_runs_it(scrapes: Scrapes, kind: str) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders")
        topic.publish_many([b"x"] * 200).result(60)
        handled: list[Message] = []
        with _pulling(sub, kind, handled) as stream:
            until(lambda: stream.stats.acked == 200)
    of = {"subscription": "billing", "topic": "orders"}
    assert scrapes.value("kafka_pubsub_callback_seconds_count", **of) == len(handled) == 200
    assert (scrapes.value("kafka_pubsub_callback_seconds_sum", **of) or 0) > 0


@contextlib.contextmanager
def _pulling(sub: Subscription, kind: str, handled: list[Message]) -> Iterator[Stream]:
    def handle(message: Message) -> None:
        handled.append(message)
        message.ack()

    def each(messages: list[Message]) -> None:
        for message in messages:
            handle(message)

    async def coroutine(message: Message) -> None:
        handle(message)

    with contextlib.ExitStack() as stack:
        if kind == "batch":
            yield stack.enter_context(sub.pull_batch(each))
        elif kind == "coroutine":
            thread = LoopThread()
            stack.callback(thread.close)
            yield stack.enter_context(sub._pull_async(coroutine, thread.loop))
        else:
            executor = stack.enter_context(ThreadPoolExecutor(2)) if kind == "executor" else None
            yield stack.enter_context(sub.pull(handle, executor=executor))


def test_a_second_client_adds_to_the_first(scrapes: Scrapes) -> None:
    for _ in range(2):
        with PubSub.in_memory() as ps:
            ps.create_topic("orders").publish(b"x").result(10)
    assert scrapes.value("kafka_pubsub_published_total", topic="orders") == 2


def test_the_lanes_of_a_topic_count_under_its_name(scrapes: Scrapes) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("jobs", priorities=3, transient=True)
        topic.publish(b"a", priority=2).result(10)
        topic.publish(b"b").result(10)
        topic.publish(b"c", durable=False).result(10)
        assert scrapes.value("kafka_pubsub_published_total", topic="jobs") == 3


def test_a_scrape_waits_for_no_broker_and_keeps_what_it_knew(monkeypatch: pytest.MonkeyPatch) -> None:
    view = KafkaView(everything=True, every=0.01, clusters=lambda: [ps._cluster])
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        until(lambda: any(each.labels.get("subscription") == "billing" for each in view.readings()))

        def hang(*_: object) -> object:
            raise FailedPrecondition("no leader")

        monkeypatch.setattr("kafka_pubsub.observe.kafka_view.state_of", hang)
        until(lambda: view.readings()[0].counts["view_failures"] > 0)
        found = view.readings()
        assert any(each.labels.get("subscription") == "billing" for each in found)
        assert found[0].gauges["view_age"] > 0


def test_readings_go_to_another_process_and_back(scrapes: Scrapes) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders").publish(b"x").result(10)
        before = scrapes.parts.read()
        assert metrics.decode(metrics.encode(before)) == before


def test_the_text_is_that_of_prometheus_and_of_openmetrics(scrapes: Scrapes) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders").publish(b"x").result(10)
        kind, text = metrics.exposition(scrapes.parts.read())
        assert kind.startswith("text/plain")
        names = {each.name for each in text_string_to_metric_families(text.decode())}
        assert "kafka_pubsub_published" in names
        kind, text = metrics.exposition(scrapes.parts.read(), "application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith(b"# EOF\n")


def test_no_label_is_a_key_a_member_or_a_partition() -> None:
    assert {label for each in METRICS for label in each.labels} == {"topic", "subscription", "reason", "unit"}
    assert len({each.name for each in METRICS}) == len(METRICS) == len({each.field for each in METRICS})


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from kafka_pubsub.observe.metrics import register\n"
        "try:\n    register()\nexcept Exception as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kafka-pubsub-orderly[metrics]" in done.stdout
