"""Spans of sends and deliveries: names by the conventions, links, outcomes, and a tracer that hurts nothing."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from kafka_pubsub import InvalidArgument, Message, PubSub
from kafka_pubsub.aio import PubSub as AioPubSub
from kafka_pubsub.observe import tracing
from tests.support import until
from tests.unit.house.repository import project


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def wait(self, name: str, count: int) -> list[ReadableSpan]:
        until(lambda: len(self.named(name)) >= count, f"{count} spans {name!r}")
        return self.named(name)


def place(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(each.context.trace_id, each.context.span_id) for each in span.links]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    tracing.instrument(found.provider)
    yield found
    tracing.uninstrument()


def test_the_names_are_those_of_the_conventions() -> None:
    assert tracing.SYSTEM == conventions.MESSAGING_SYSTEM
    assert tracing.OPERATION == conventions.MESSAGING_OPERATION_NAME
    assert tracing.OPERATION_TYPE == conventions.MESSAGING_OPERATION_TYPE
    assert tracing.DESTINATION == conventions.MESSAGING_DESTINATION_NAME
    assert tracing.GROUP == conventions.MESSAGING_CONSUMER_GROUP_NAME
    assert tracing.PARTITION == conventions.MESSAGING_DESTINATION_PARTITION_ID
    assert tracing.OFFSET == conventions.MESSAGING_KAFKA_OFFSET
    assert tracing.KEY == conventions.MESSAGING_KAFKA_MESSAGE_KEY
    assert tracing.MESSAGE_ID == conventions.MESSAGING_MESSAGE_ID
    assert tracing.BODY_SIZE == conventions.MESSAGING_MESSAGE_BODY_SIZE
    assert tracing.BATCH == conventions.MESSAGING_BATCH_MESSAGE_COUNT
    assert tracing.ERROR == ERROR_TYPE
    kinds = {each.value for each in conventions.MessagingOperationTypeValues}
    assert {"send", "process", "receive"} <= kinds
    assert conventions.MessagingSystemValues.KAFKA.value == "kafka"


def test_a_message_has_a_span_of_its_send_and_a_linked_one_of_its_delivery(spans: Spans) -> None:
    seen: list[str] = []
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders", message_ordering=True)
        sub = ps.create_subscription("billing", topic="orders", message_ordering=True)

        def handle(message: Message) -> None:
            seen.append(format(get_current_span().get_span_context().trace_id, "032x"))
            message.ack()

        message_id = topic.publish(b"hello", ordering_key="user-1", attributes={"kind": "new"}).result(10)
        with sub.pull(handle):
            (process,) = spans.wait("process orders", 1)
        (send,) = spans.wait("send orders", 1)
    assert send.kind is SpanKind.PRODUCER
    assert process.kind is SpanKind.CONSUMER
    assert send.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": message_id.split(":")[1],
        "messaging.kafka.message.key": "user-1",
        "messaging.message.body.size": 5,
        "messaging.message.id": message_id,
    }
    assert process.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
        "messaging.destination.partition.id": message_id.split(":")[1],
        "messaging.kafka.offset": int(message_id.split(":")[2]),
        "messaging.kafka.message.key": "user-1",
        "messaging.message.id": message_id,
        "kafka_pubsub.delivery_attempt": 1,
        "kafka_pubsub.outcome": "ack",
    }
    assert process.parent is None
    assert linked(process) == [place(send)]
    assert seen == [format(place(process)[0], "032x")]


def test_a_redelivery_is_a_new_span_that_links_to_the_first(spans: Spans) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders")

        def handle(message: Message) -> None:
            if message.delivery_attempt == 1:
                raise ValueError("no such user")
            message.ack()

        topic.publish(b"x").result(10)
        with sub.pull(handle):
            first, second = spans.wait("process orders", 2)
    assert first.attributes is not None
    assert second.attributes is not None
    assert first.attributes["kafka_pubsub.outcome"] == "nack"
    assert first.attributes["error.type"] == "ValueError"
    assert first.status.status_code is StatusCode.ERROR
    assert second.attributes["kafka_pubsub.delivery_attempt"] == 2
    (send,) = spans.named("send orders")
    assert linked(second) == [place(send), place(first)]


def test_with_parent_the_delivery_is_in_the_trace_of_its_send() -> None:
    spans = Spans()
    tracing.instrument(spans.provider, parent=True)
    try:
        with PubSub.in_memory() as ps:
            ps.create_topic("orders")
            sub = ps.create_subscription("billing", topic="orders")
            ps.topic("orders").publish(b"x").result(10)
            with sub.pull(lambda message: message.ack()):
                (process,) = spans.wait("process orders", 1)
            (send,) = spans.wait("send orders", 1)
    finally:
        tracing.uninstrument()
    assert process.parent is not None
    assert (process.parent.trace_id, process.parent.span_id) == place(send)
    assert process.links == ()


def test_batches_and_coroutines_have_spans(spans: Spans) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders")
        topic.publish_many([b"a", {"data": b"b", "attributes": {"kind": "new"}}]).result(10)
        (send,) = spans.named("send orders")
        assert send.attributes is not None
        assert send.attributes["messaging.batch.message_count"] == 2

        def handle(messages: list[Message]) -> None:
            for each in messages:
                each.ack()

        with sub.pull_batch(handle, max_latency=1.0):
            processes = spans.wait("process orders", 1)
        links = [link for each in processes for link in each.links]
        assert {each.context.span_id for each in links} == {place(send)[1]}
    asyncio.run(_pull_in_a_loop())
    assert len(spans.wait("process mail", 1)) == 1


async def _pull_in_a_loop() -> None:
    async with AioPubSub.in_memory() as ps:
        topic = await ps.create_topic("mail")
        sub = await ps.create_subscription("post", topic="mail")
        done = asyncio.Event()

        async def handle(message: Message) -> None:
            message.ack()
            done.set()

        await topic.publish(b"x")
        async with sub.pull(handle):
            await asyncio.wait_for(done.wait(), 10)


class Raising(SpanProcessor):
    """A processor, such as an exporter's, that raises at everything."""

    def on_start(self, span: object, parent_context: object = None) -> None:
        raise RuntimeError("the collector is gone")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the collector is gone")


def test_a_receive_that_returns_messages_has_a_span(spans: Spans) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders")
        assert sub.receive(timeout=0) == []
        topic.publish(b"a").result(10)
        (message,) = sub.receive(10, timeout=30)
        message.ack()
        (send,), (receive,) = spans.named("send orders"), spans.named("receive orders")
    assert receive.kind is SpanKind.CLIENT
    assert receive.attributes is not None
    assert receive.attributes["messaging.operation.type"] == "receive"
    assert receive.attributes["messaging.consumer.group.name"] == "billing"
    assert receive.attributes["messaging.batch.message_count"] == 1
    assert [each.context.span_id for each in receive.links] == [place(send)[1]]
    assert receive.start_time is not None
    assert receive.end_time is not None
    assert receive.start_time < receive.end_time


def test_a_tracer_that_raises_hurts_no_message(caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Raising())
    tracing.instrument(provider)
    got: list[bytes] = []
    try:
        with PubSub.in_memory() as ps:
            topic = ps.create_topic("orders")
            sub = ps.create_subscription("billing", topic="orders")

            def handle(message: Message) -> None:
                got.append(message.data)
                message.ack()

            bodies: Sequence[bytes] = [b"%d" % number for number in range(5)]
            for body in bodies:
                topic.publish(body).result(10)
            with sub.pull(handle) as stream:
                until(lambda: len(got) == 5)
                assert stream.stats.redelivered == 0
    finally:
        tracing.uninstrument()
    assert sorted(got) == sorted(bodies)
    warnings = [
        each for each in caplog.records if each.name == "kafka_pubsub.tracing" and each.levelname == "WARNING"
    ]
    assert len(warnings) == 1


def test_without_an_sdk_nothing_is_in_the_way() -> None:
    code = (
        "from kafka_pubsub import PubSub\n"
        "from kafka_pubsub.observe.tracing import instrument\n"
        "instrument()\n"
        "print(type(PubSub.in_memory().topic('orders')).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Topic\n"


def test_the_instrumentation_of_the_client_does_not_catch_ours() -> None:
    """It puts other classes into `confluent_kafka`, whose spans would be about our own requests."""
    code = (
        "from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor\n"
        "ConfluentKafkaInstrumentor().instrument()\n"
        "import confluent_kafka\n"
        "from kafka_pubsub.log.kafka import client_factory\n"
        "print(confluent_kafka.Producer.__name__, client_factory.Producer.__name__, client_factory.Consumer.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["AutoInstrumentedProducer", "Producer", "Consumer"]


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from kafka_pubsub.observe.tracing import instrument\n"
        "try:\n    instrument()\nexcept Exception as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "kafka-pubsub-orderly[tracing]" in done.stdout


def test_the_entry_point_instruments_as_the_command_does() -> None:
    spans = Spans()
    tracing.Instrumentor().instrument(tracer_provider=spans.provider)
    try:
        with PubSub.in_memory() as ps:
            ps.create_topic("orders").publish(b"x").result(10)
            assert spans.wait("send orders", 1)
    finally:
        tracing.Instrumentor().uninstrument()
    with PubSub.in_memory() as ps:
        ps.create_topic("mail").publish(b"x").result(10)
        assert spans.named("send mail") == []


def test_the_entry_point_is_declared_and_leads_there() -> None:
    declared = project()["project"]["entry-points"]["opentelemetry_instrumentor"]
    module, _, name = declared["kafka_pubsub"].partition(":")
    assert getattr(importlib.import_module(module), name) is tracing.Instrumentor


def test_with_many_on_their_way_a_span_ends_when_its_message_is_queued(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MOST_OPEN", 0)
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        topic.publish(b"x").result(10)
        (send,) = spans.named("send orders")
    assert send.attributes is not None
    assert "messaging.message.id" not in send.attributes


def test_a_message_that_fails_is_a_span_with_its_error(spans: Spans) -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        with pytest.raises(InvalidArgument):
            topic.publish(b"x" * 2_000_000)
    (send,) = spans.named("send orders")
    assert send.attributes is not None
    assert send.attributes["error.type"] == "InvalidArgument"
    assert send.status.status_code is StatusCode.ERROR
