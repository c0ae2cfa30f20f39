"""The small registry of tests answers confluent-kafka's client as a real one does; and it can be disturbed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from kafka_pubsub.records.checks import check_in_registry
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.registry import Registry
from tests.apicurio import fresh
from tests.registry_server import RegistryServer

ONE: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": ""}]}
# Apicurio looks into a schema for its format, and finds none in `{"type": "object"}`.
ITEM = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"a": {"type": "integer"}},
}
OTHER = {"type": "record", "name": "Line", "fields": [{"name": "order", "type": "Order"}]}


@pytest.fixture(params=["real", "small"])
def client(request: pytest.FixtureRequest) -> Iterator[SchemaRegistryClient]:
    if request.param == "real":
        address = request.getfixturevalue("registry")
        with SchemaRegistryClient({"url": address, "timeout": 30}) as client:
            yield client
        return
    with RegistryServer() as server, SchemaRegistryClient({"url": server.address}) as client:
        yield client


def read(schema: Schema | None) -> Any:
    assert schema is not None
    return json.loads(schema.schema_str or "")


def refused(call: Callable[[], object]) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as told:
        call()
    return told.value.http_status_code, told.value.error_code


def test_a_subject_and_its_versions(client: SchemaRegistryClient) -> None:
    subject, other = fresh("orders"), fresh("other")
    one, two = Schema(json.dumps(ONE), "AVRO"), Schema(json.dumps(TWO), "AVRO")
    first, second = client.register_schema(subject, one), client.register_schema(subject, two)
    assert first != second
    assert client.register_schema(other, one) == first, "a schema has one number"
    assert client.get_versions(subject) == [1, 2]
    latest = client.get_latest_version(subject)
    assert (latest.schema_id, latest.version, latest.subject) == (second, 2, subject)
    assert read(client.get_version(subject, 1).schema) == ONE
    assert read(client.get_schema(first)) == ONE
    assert client.lookup_schema(subject, two).version == 2
    assert {subject, other} <= set(client.get_subjects())
    assert client.test_compatibility(subject, two)


def test_formats_and_references(client: SchemaRegistryClient) -> None:
    subject, other = fresh("orders"), fresh("lines")
    client.register_schema(subject, Schema(json.dumps(ONE), "AVRO"))
    reference = SchemaReference("Order", subject, 1)
    number = client.register_schema(other, Schema(json.dumps(OTHER), "AVRO", [reference]))
    assert client.get_schema(number).references == [reference]
    number = client.register_schema(fresh("json"), Schema(json.dumps(ITEM), "JSON"))
    assert client.get_schema(number).schema_type == "JSON"
    text = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'
    number = client.register_schema(fresh("protobuf"), Schema(text, "PROTOBUF"))
    assert client.get_schema(number).schema_type == "PROTOBUF"


def test_what_isn_t_there(client: SchemaRegistryClient) -> None:
    subject = fresh("orders")
    client.register_schema(subject, Schema(json.dumps(ONE), "AVRO"))
    assert refused(lambda: client.get_schema(999_999)) == (404, 40403)
    assert refused(lambda: client.get_latest_version(fresh("none"))) == (404, 40401)
    assert refused(lambda: client.get_version(subject, 7)) == (404, 40402)
    assert refused(lambda: client.lookup_schema(subject, Schema(json.dumps(TWO), "AVRO"))) == (404, 40403)


def test_a_real_one_refuses_an_incompatible_version(registry: str) -> None:
    subject = fresh("orders")
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        client.register_schema(subject, Schema(json.dumps(ONE), "AVRO"))
        client.set_compatibility(subject, "BACKWARD")
        wrong = Schema(json.dumps({**ONE, "fields": [{"name": "id", "type": "string"}]}), "AVRO")
        assert not client.test_compatibility(subject, wrong)
        assert refused(lambda: client.register_schema(subject, wrong))[0] == 409


def test_a_schema_is_checked_by_a_real_one(registry: str) -> None:
    subject = fresh("orders")
    wrong = parse_schema("avro", json.dumps({**ONE, "fields": [{"name": "id", "type": "string"}]}))
    asked = Registry({"url": registry, "timeout": 30})
    with closing(asked), SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        assert "has no version yet" in check_in_registry(asked, subject, wrong).note
        client.register_schema(subject, Schema(json.dumps(ONE), "AVRO"))
        assert "compares nothing" in check_in_registry(asked, subject, wrong).note
        client.set_compatibility(subject, "BACKWARD")
        assert check_in_registry(asked, subject, wrong).breaks == [
            (1, "backward", "id", "long can't be read as string")
        ]
        assert check_in_registry(asked, subject, parse_schema("avro", json.dumps(TWO))) == ([1], [], "")


def test_the_small_one_counts_and_can_be_disturbed() -> None:
    settings = {"max.retries": 0, "timeout": 0.5}
    with RegistryServer() as server, SchemaRegistryClient({"url": server.address, **settings}) as client:
        number = server.add("orders", "AVRO", json.dumps(ONE))
        assert client.get_latest_version("orders").guid == server.schemas[number].guid
        client.get_schema(number)
        client.get_schema(number)
        assert server.requests == ["GET /subjects/orders/versions/latest", f"GET /schemas/ids/{number}"]
        with server.failing(500):
            assert refused(client.get_subjects)[0] == 500
        with server.away(), pytest.raises(Exception, match=r"refused|onnect"):
            client.get_subjects()
        with server.slow(60), pytest.raises(Exception, match="timed out"):
            client.get_subjects()
        assert client.get_subjects() == ["orders"]
        server.incompatible["orders"] = ["id was removed"]
        wrong = Schema(json.dumps(TWO), "AVRO")
        assert refused(lambda: client.register_schema("orders", wrong))[0] == 409
        assert not client.test_compatibility("orders", wrong)
