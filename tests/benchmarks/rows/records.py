"""Records of five fields: encoded and decoded beside confluent-kafka's serializers, and in handlers beside JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kafka_pubsub import App, PubSub
from kafka_pubsub.config import TopicSchema
from kafka_pubsub.records.opening import open_records
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.records import Declared
from tests.benchmarks.cluster import create_with_us, fill, read_through
from tests.benchmarks.data import Order, order_of
from tests.benchmarks.meter import Meter
from tests.benchmarks.row import Measured

__all__ = ["bare", "on_avro", "on_json", "ours", "prepare"]

#: A registry in this process; its first schema has the number 1.
_PLACE = "mock://benchmark"
_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "place", "type": "long"},
            {"name": "cents", "type": "long"},
            {"name": "items", "type": {"type": "array", "items": "string"}},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
#: Name, type and label of each field, as descriptors number them.
_FIELDS = (("user", 9, 1), ("place", 3, 1), ("cents", 3, 1), ("items", 9, 3), ("note", 9, 1))


def _message() -> type[Any]:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind, label) in enumerate(_FIELDS, 1):
        message.field.add(name=name, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order"))
    return found


def _declared(format_: str) -> tuple[Any, type[Any]]:
    """Returns what declares the topic, and the class of its values."""
    if format_ == "protobuf":
        kind = _message()
        return kind, kind
    return Order, Order


def _value(kind: type[Any]) -> Any:
    fields = json.loads(order_of(7, 3))
    return kind(**fields)


def ours(format_: str, count: int) -> Measured:
    """What `publish_record` and `message.record(Order)` do beside Kafka."""
    records = open_records(_PLACE)
    given, kind = _declared(format_)
    if format_ == "avro":
        codec = parse_schema("avro", _AVRO)
        schema = TopicSchema(format="avro", subject="orders-value", framing="confluent")
        declared = Declared(schema, Order, records.source.register("orders-value", codec))
    else:
        declared = records.declare("orders", given)
    writer, value = records.use("orders", declared), _value(kind)
    body, _ = writer.encode(value)
    assert records.decode([], body, kind) == value
    return {
        "encode": _rate(lambda: writer.encode(value), count),
        "decode": _rate(lambda: records.decode([], body, kind), count),
    }


def bare(format_: str, count: int) -> Measured:
    """Confluent's serializer and deserializer, with functions that make dicts of the model and back."""
    client = SchemaRegistryClient.new_client({"url": _PLACE})
    context = SerializationContext("orders", MessageField.VALUE)
    _, kind = _declared(format_)
    value = _value(kind)
    write: Callable[..., Any]
    read: Callable[..., Any]
    if format_ == "avro":
        write = AvroSerializer(client, _AVRO, lambda each, _: each.model_dump())
        read = AvroDeserializer(client, None, lambda found, _: Order.model_validate(found))
    elif format_ == "json":
        schema = json.dumps(Order.model_json_schema())
        write = JSONSerializer(schema, client, lambda each, _: each.model_dump())
        read = JSONDeserializer(schema, lambda found, _: Order.model_validate(found), client)
    else:
        settings = {"use.deprecated.format": False}
        write = ProtobufSerializer(kind, client, settings)
        read = ProtobufDeserializer(kind, settings, client)
    body = write(value, context)
    assert read(body, context) == value
    return {
        "encode": _rate(lambda: write(value, context), count),
        "decode": _rate(lambda: read(body, context), count),
    }


def _rate(work: Callable[[], object], count: int) -> float:
    for _ in range(count // 10):
        work()
    began = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - began)


def prepare(
    bootstrap: str, topic: str, distinct: int, messages: int, subscriptions: list[str], ours: bool
) -> Measured:
    """Makes a topic of JSON and one of Avro, and fills both with the same orders."""
    codec = parse_schema("avro", _AVRO)

    def avro(key: int, place: int) -> bytes:
        return b"\0\0\0\0\1" + codec.encode(json.loads(order_of(key, place)))

    for name, make in ((topic, order_of), (f"{topic}-avro", avro)):
        groups = [each for each in subscriptions if ("avro" in each) == (make is avro)]
        create_with_us(bootstrap, name, groups)
        fill(bootstrap, name, distinct, messages, make)
        read_through(bootstrap, name, messages)
    return {"published": messages}


def on_json(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """A handler of an `App` whose bodies are JSON."""
    with PubSub(bootstrap, schemas=_PLACE) as ps:
        return {"rate": _handled(ps, topic, group, Meter(warmup, measured), patience)}


def on_avro(bootstrap: str, topic: str, group: str, warmup: int, measured: int, patience: float) -> Measured:
    """The same handler, whose bodies are Avro; also counts what the registry is asked while it runs."""
    asked = 0
    with PubSub(bootstrap, schemas=_PLACE) as ps:
        records = ps._cluster.records
        records.source.register("orders-value", parse_schema("avro", _AVRO))
        ask = records.source._ask  # type: ignore[attr-defined]

        def counted(*question: Any) -> Any:
            nonlocal asked
            asked += 1
            return ask(*question)

        records.source._ask = counted  # type: ignore[attr-defined]
        rate = _handled(ps, f"{topic}-avro", group, Meter(warmup, measured), patience)
    return {"rate": rate, "requests": asked}


def _handled(ps: PubSub, topic: str, group: str, meter: Meter, patience: float) -> float:
    app = App(pubsub=ps)

    @app.subscriber(group, topic=topic, message_ordering=True)
    def handle(order: Order) -> None:
        meter.one()

    app.start()
    try:
        return meter.wait(patience)
    finally:
        app.stop()
