"""The log: JSON with ids of spans, the life of a stream at INFO, warnings that don't flood, and no secret."""

from __future__ import annotations

import json
import logging
import sys
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider

from kafka_pubsub import Message, PubSub
from kafka_pubsub.observe.logs import JsonFormatter
from tests.support import until


def record(text: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("kafka_pubsub.app", logging.INFO, __file__, 1, text, arguments, None)
    made.__dict__.update(extra)
    return made


def test_a_record_is_a_line_of_json() -> None:
    said = json.loads(
        JsonFormatter().format(record("subscription %r: %s", "billing", "ä", order=17, odd={1}))
    )
    assert said["message"] == "subscription 'billing': ä"
    assert said["level"] == "INFO"
    assert said["logger"] == "kafka_pubsub.app"
    assert said["time"].endswith("Z")
    assert said["order"] == 17
    assert said["odd"] == "{1}"


def test_an_extra_that_json_cannot_have_loses_no_line() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    circle: list[object] = []
    circle.append(circle)
    for odd in ({("a", 1): 2}, circle, Shy()):
        said = json.loads(JsonFormatter().format(record("kept", odd=odd)))
        assert said["message"] == "kept"
        assert said["extra"]


def test_an_extra_changes_no_field_of_the_formatter() -> None:
    said = json.loads(JsonFormatter().format(record("kept", level="mine", time=0, error="mine")))
    assert said["level"] == "INFO"
    assert said["time"].endswith("Z")


def test_an_error_has_its_class_and_traceback() -> None:
    made = record("failed")
    try:
        raise ValueError("no such user")
    except ValueError:
        made.exc_info = sys.exc_info()
    said = json.loads(JsonFormatter().format(made))
    assert said["error"] == "ValueError"
    assert "no such user" in said["traceback"]


def test_inside_a_span_its_ids_are_there() -> None:
    tracer = TracerProvider().get_tracer("test")
    assert "trace_id" not in json.loads(JsonFormatter().format(record("x")))
    with tracer.start_as_current_span("process orders") as span:
        said = json.loads(JsonFormatter().format(record("x")))
    assert said["trace_id"] == format(span.get_span_context().trace_id, "032x")
    assert said["span_id"] == format(span.get_span_context().span_id, "016x")


def test_the_life_of_a_stream_is_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_pubsub")
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", partitions=6)
        sub = ps.create_subscription("billing", topic="orders")
        with sub.pull(lambda message: message.ack()) as stream:
            until(lambda: stream.joined)
    lines = [each.getMessage() for each in caplog.records if each.name == "kafka_pubsub.subscriber"]
    assert any(line.startswith("subscription 'billing': assigned ") and "orders[0]" in line for line in lines)
    assert any(line.startswith("subscription 'billing': revoked ") for line in lines)


def test_a_slow_callback_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_pubsub")
    ended = threading.Event()
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders", partitions=1)
        sub = ps.create_subscription("billing", topic="orders", ack_deadline=1)

        def handle(message: Message) -> None:
            ended.wait(1.5)
            message.ack()

        for _ in range(2):
            topic.publish(b"x").result(10)
        with sub.pull(handle) as stream:
            until(lambda: stream.stats.acked == 2)
    slow = [each for each in caplog.records if "takes long" in each.getMessage()]
    assert len(slow) == 1
    assert slow[0].levelname == "INFO"


def test_no_secret_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "correct-horse-battery"
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "billing",
        "sasl.password": secret,
        "ssl.key.password": secret,
    }
    from kafka_pubsub.errors import PubSubError

    with PubSub("127.0.0.1:9", config=config) as ps:
        with pytest.raises(PubSubError) as failed:
            ps.list_topics()
        shown = repr(ps) + str(failed.value) + repr(failed.value)
    assert secret not in shown
    assert secret not in caplog.text
