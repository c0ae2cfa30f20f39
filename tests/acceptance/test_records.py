"""Records on a real Kafka: by a registry and by a folder, beside Confluent's clients, on every way of a message."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from dataclasses_avroschema.pydantic import AvroBaseModel
from pydantic import BaseModel

from kafka_pubsub import (
    App,
    DeadLetterPolicy,
    DelayRouter,
    Message,
    PubSub,
    RegistryUnavailable,
    RetryPolicy,
    SchemaError,
    TopicSchema,
    aio,
)
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.options import PublishOptions
from tests.apicurio import fresh
from tests.registry_server import RegistryServer
from tests.support import until

PATIENCE = 60.0


class Order(AvroBaseModel):
    user_id: str
    total: int


class Customer(BaseModel):
    name: str
    age: int


ADA = Order(user_id="ada", total=12)


@pytest.fixture
def ps(kafka: RunningKafka, registry: str) -> Iterator[PubSub]:
    with PubSub(kafka.bootstrap, schemas={"url": registry, "timeout": 30}) as opened:
        yield opened


def received(ps: PubSub, subscription: str, count: int) -> list[Message]:
    found: list[Message] = []
    with ps.subscription(subscription) as source:
        while len(found) < count:
            some = source.receive(count - len(found), timeout=PATIENCE)
            assert some, f"{len(found)} of {count} messages came"
            for each in some:
                each.ack()
            found += some
    return found


@pytest.mark.parametrize("value", [ADA, Customer(name="ada", age=36)], ids=["avro", "json"])
def test_models_on_both_ends(ps: PubSub, value: BaseModel) -> None:
    name, kind = fresh("orders"), type(value)
    topic = ps.create_topic(name, schema=kind)
    ps.create_subscription(name, name)
    futures = [topic.publish_record(value, ordering_key=f"k{at % 5}") for at in range(50)]
    assert len({each.result(PATIENCE) for each in futures}) == 50
    assert [each.record(kind) for each in received(ps, name, 50)] == [value] * 50


def test_confluents_clients_read_ours_and_we_read_theirs(ps: PubSub, registry: str) -> None:
    name = fresh("orders")
    topic = ps.create_topic(name, schema=Order)
    ps.create_subscription(name, name)
    topic.publish_record(ADA).result(PATIENCE)
    context = SerializationContext(name, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        written = AvroSerializer(client, Order.avro_schema())({"user_id": "bob", "total": 3}, context)
        assert isinstance(written, bytes)
        topic.publish(written).result(PATIENCE)
        found = received(ps, name, 2)
        read = AvroDeserializer(client)
        theirs: list[Any] = [read(each.data, context) for each in found]
    assert sorted(each["user_id"] for each in theirs) == ["ada", "bob"]
    assert [each.record(Order).model_dump() for each in found] == theirs


def test_an_incompatible_version_is_refused_and_named(ps: PubSub, registry: str) -> None:
    name = fresh("orders")
    ps.create_topic(name, schema=Order)
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        client.set_compatibility(f"{name}-value", "BACKWARD")

    class Renamed(AvroBaseModel):
        user_id: str
        sum: int

        class Meta:
            schema_name = "Order"

    with pytest.raises(SchemaError, match=rf"{name}-value.*isn't compatible"):
        ps.update_topic(name, schema=Renamed)
    assert ps.topic(name).publish_record(ADA).result(PATIENCE)


def test_a_record_keeps_its_header_on_every_way(kafka: RunningKafka, tmp_path: Path) -> None:
    name = fresh("orders")
    (tmp_path / name).mkdir()
    (tmp_path / name / "v1.avsc").write_text(Order.avro_schema())
    with PubSub(kafka.bootstrap, schemas=tmp_path) as ps, DelayRouter(ps):
        topic = ps.create_topic(name, schema=name, priorities=3)
        ps.create_topic(dead := fresh("dead"))
        sub = ps.create_subscription(
            name,
            name,
            message_ordering=True,
            retry=RetryPolicy(min_backoff=0.01, max_backoff=0.02),
            dead_letter=DeadLetterPolicy(topic=dead, max_attempts=3),
        )
        ways: list[PublishOptions] = [{}, {"delay": 0.2}, {"priority": 2}]
        for at, options in enumerate(ways):
            options["ordering_key"] = "ada"
            topic.publish_record({"user_id": "ada", "total": at}, **options).result(PATIENCE)
        topic.publish(b"hello", ordering_key="bob").result(PATIENCE)
        seen: dict[int, int] = {}

        def handle(message: Message) -> None:
            order = message.record(Order)
            if order.total not in seen:
                seen[order.total] = message.delivery_attempt
                raise RuntimeError("the first attempt fails")
            seen[order.total] = message.delivery_attempt
            message.ack()

        with sub.pull(handle):
            until(lambda: seen == {0: 2, 1: 2, 2: 2}, patience=PATIENCE)
            until(lambda: list(sub.dead_letters()), patience=PATIENCE)
        (letter,) = sub.dead_letters()
        assert (letter.data, letter.attempts) == (b"hello", 1)
        assert "doesn't say its schema" in letter.error


def test_an_app_declares_reads_and_returns_records(kafka: RunningKafka, registry: str) -> None:
    orders, invoices, group = fresh("orders"), fresh("invoices"), fresh("billing")
    app = App(kafka.bootstrap, schemas={"url": registry, "timeout": 30})
    topic = app.topic(orders, Order, schema="avro", key=lambda order: order.user_id)
    app.topic(invoices, Order, schema=TopicSchema(format="avro", subject=f"{orders}-value", framing="header"))

    @app.subscriber(group, topic=orders, start="earliest", to=invoices)
    def charge(order: Order) -> Order:
        return Order(user_id=order.user_id, total=order.total * 2)

    with PubSub(kafka.bootstrap, schemas={"url": registry, "timeout": 30}) as ps:
        ps.create_topic(orders, schema=Order)
        ps.create_topic(invoices, schema=TopicSchema(subject=f"{orders}-value", framing="header"))
        ps.create_subscription(invoices, invoices)
        app.start()
        try:
            topic.publish(ADA).result(PATIENCE)
            (message,) = received(ps, invoices, 1)
        finally:
            app.stop()
        assert message.record(Order) == Order(user_id="ada", total=24)
        assert message.ordering_key == "ada"
        assert message.data[0] != 0, "the body is bare"


def test_an_outage_of_the_registry_stops_only_what_begins_in_it(kafka: RunningKafka) -> None:
    name = fresh("orders")
    with RegistryServer() as server, PubSub(kafka.bootstrap, schemas=server.address) as ps:
        topic = ps.create_topic(name, schema=Order)
        ps.create_subscription(name, name)
        topic.publish_record(ADA).result(PATIENCE)
        asked = len(server.requests)
        with server.away():
            for _ in range(20):
                topic.publish_record(ADA).result(PATIENCE)
            assert [each.record(Order) for each in received(ps, name, 21)] == [ADA] * 21
            with PubSub(kafka.bootstrap, schemas=server.address) as late:
                began = time.monotonic()
                with pytest.raises(RegistryUnavailable, match=server.address):
                    late.topic(name).publish_record(ADA)
                assert time.monotonic() - began < 30  # 5 s where nothing else runs
        assert len(server.requests) == asked


def test_coroutines_publish_and_read_records(kafka: RunningKafka, registry: str) -> None:
    name = fresh("orders")

    async def main() -> list[Order]:
        async with aio.PubSub(kafka.bootstrap, schemas={"url": registry, "timeout": 30}) as ps:
            topic = await ps.create_topic(name, schema=Order)
            sub = await ps.create_subscription(name, name)
            await asyncio.gather(*(topic.publish_record(ADA) for _ in range(10)))
            with pytest.raises(SchemaError, match="total: "):
                await topic.publish_record({"user_id": "ada", "total": "x"})
            found: list[Order] = []
            async with sub:
                while len(found) < 10:
                    for message in await sub.receive(10, timeout=PATIENCE):
                        found.append(message.record(Order))
                        message.ack()
            return found

    assert asyncio.run(main()) == [ADA] * 10


def test_a_schema_of_a_file_is_registered_as_it_is(ps: PubSub, registry: str, tmp_path: Path) -> None:
    name = fresh("orders")
    file = tmp_path / "order.avsc"
    file.write_text(Order.avro_schema())
    ps.create_topic(name, schema=str(file))
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        stored = client.get_latest_version(f"{name}-value").schema
    assert stored is not None
    assert json.loads(stored.schema_str or "") == json.loads(Order.avro_schema())
