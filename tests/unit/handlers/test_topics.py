"""Topics of an app: the schema that they declare, and how their values are published."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from dataclasses_avroschema.pydantic import AvroBaseModel
from pydantic import BaseModel

from kafka_pubsub import (
    App,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PubSub,
    RegistryUnavailable,
    TopicSchema,
)
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.frames import SchemaId
from tests.registry_server import RegistryServer
from tests.support import until


class Order(AvroBaseModel):
    user_id: str
    total: int


class Plain(BaseModel):
    user_id: str


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def ps(server: RegistryServer) -> Iterator[PubSub]:
    with PubSub.in_memory(schemas={"url": server.address, "max.retries": 0}) as made:
        yield made


def test_the_first_value_declares_a_topic_that_is_not_there(ps: PubSub, server: RegistryServer) -> None:
    orders = App(pubsub=ps).topic("orders", Order, schema="avro", key=lambda order: order.user_id)
    assert server.requests == []
    orders.publish(Order(user_id="ada", total=1)).result(5)
    asked = len(server.requests)
    orders.publish(Order(user_id="ada", total=2)).result(5)
    assert len(server.requests) == asked
    first, second = ps.topic("orders").tail(2)
    assert [first.record(Order).total, second.record(Order).total] == [1, 2]
    assert ps.topic("orders").options.record_schema == TopicSchema(
        format="avro", subject="orders-value", framing="confluent"
    )


def test_a_topic_without_a_schema_gets_it(ps: PubSub) -> None:
    ps.create_topic("orders", partitions=3)
    App(pubsub=ps).topic("orders", Plain, schema="json").declare()
    options = ps.topic("orders").options
    assert options.partitions == 3
    assert options.record_schema is not None
    assert options.record_schema.format == "json"


def test_another_schema_than_the_topics_is_refused(ps: PubSub) -> None:
    ps.create_topic("orders", schema=Order)
    app = App(pubsub=ps)
    app.topic("orders", Order, schema="avro").declare()
    other = app.topic("orders", Order, schema=TopicSchema(subject="orders-value", framing="header"))
    with pytest.raises(
        FailedPrecondition, match=r"has the schema orders-value \(avro, confluent\), not .*header"
    ):
        other.declare()


def test_a_model_that_brings_no_schema_needs_one_that_is_there(ps: PubSub, server: RegistryServer) -> None:
    plain = App(pubsub=ps).topic("orders", Plain, schema="avro")
    with pytest.raises(NotFound, match="Plain brings no avro schema"):
        plain.declare()
    text = '{"type": "record", "name": "P", "fields": [{"name": "user_id", "type": "string"}]}'
    server.add("orders-value", "AVRO", text)
    plain.publish(Plain(user_id="ada")).result(5)
    (message,) = ps.topic("orders").tail(1)
    assert message.record(Plain) == Plain(user_id="ada")


def test_an_app_whose_registry_is_away_says_so_at_its_start(ps: PubSub, server: RegistryServer) -> None:
    app = App(pubsub=ps)
    app.topic("orders", Order, schema="avro")
    app.subscriber("billing", topic="orders")(print_order)
    with server.failing(503), pytest.raises(RegistryUnavailable, match="orders-value"):
        app.start()
    assert app.life is None


def print_order(order: Order) -> None:
    print(order)


def test_bytes_and_other_types_go_as_before(ps: PubSub) -> None:
    orders = App(pubsub=ps).topic("orders", schema=TopicSchema(subject="any", format="avro"))
    ps.create_topic("orders")
    orders.publish(b"raw").result(5)
    assert [each.data for each in ps.topic("orders").tail(1)] == [b"raw"]
    typed = App(pubsub=ps).topic("orders", Order, schema="avro")
    with pytest.raises(InvalidArgument, match="takes Order"):
        typed.publish({"user_id": "ada"})  # type: ignore[arg-type]


def test_a_coroutine_waits_for_the_registry_beside_its_loop(ps: PubSub, server: RegistryServer) -> None:
    ps.create_topic("orders", schema=Order)
    ps.topic("orders").publish_record(Order(user_id="ada", total=1)).result(5)
    other = PubSub.in_memory(
        MemoryBackend(cluster=memory_of(ps).cluster), schemas=server.address, services=False
    )
    app, threads = App(pubsub=other), set[str]()
    find = other._cluster.records.source.find

    def noted(schema: SchemaId) -> Codec:
        threads.add(threading.current_thread().name)
        return find(schema)

    other._cluster.records.source.find = noted  # type: ignore[method-assign]
    loops: set[str] = set()

    @app.subscriber("billing", topic="orders", start="earliest")
    async def charge(order: Order) -> None:
        loops.add(threading.current_thread().name)

    with other:
        app.start()
        try:
            until(lambda: loops)
        finally:
            app.stop()
    assert threads
    assert not threads & loops


def memory_of(ps: PubSub) -> MemoryBackend:
    backend = ps._cluster.backend
    assert isinstance(backend, MemoryBackend)
    return backend
