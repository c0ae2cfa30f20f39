"""Records over the in-memory Kafka: declared, published, read, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dataclasses_avroschema.pydantic import AvroBaseModel
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pydantic import BaseModel, Field

from kafka_pubsub import (
    AlreadyExists,
    BadRecord,
    DeadLetterPolicy,
    FailedPrecondition,
    InvalidArgument,
    Message,
    NotFound,
    PubSub,
    RegistryUnavailable,
    SchemaError,
    TopicSchema,
)
from kafka_pubsub.records import avro
from kafka_pubsub.records.avro import AvroCodec
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.frames import CONFLUENT_HEADER, RECORD_HEADER, frame
from kafka_pubsub.records.opening import open_records
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.records.protobuf import ProtobufCodec
from tests.registry_server import RegistryServer
from tests.support import until


class Item(AvroBaseModel):
    sku: str
    price: float


class Order(AvroBaseModel):
    user_id: str
    total: int
    items: list[Item] = Field(default_factory=list)


class Plain(BaseModel):
    user_id: str
    total: int


@dataclass
class Customer:
    name: str


ADA = Order(user_id="ada", total=12, items=[Item(sku="a", price=1.5)])
TEXT = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "user_id", "type": "string"}, {"name": "total", "type": "long", "default": 0}],
    }
)


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def ps(server: RegistryServer) -> Iterator[PubSub]:
    with PubSub.in_memory(schemas={"url": server.address, "max.retries": 0}) as made:
        yield made


def received(ps: PubSub, subscription: str, count: int = 1) -> list[Message]:
    with ps.subscription(subscription) as source:
        found = source.receive(count, timeout=5)
        for each in found:
            each.ack()
    return found


def test_a_class_declares_publishes_and_reads(ps: PubSub, server: RegistryServer) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    asked = len(server.requests)
    topic.publish_record(ADA, ordering_key="ada", attributes={"kind": "new"}).result(5)
    (message,) = received(ps, "billing")
    assert message.record(Order) == ADA
    assert message.record() == ADA.model_dump()
    assert message.data[:5] == b"\0\0\0\0\1"
    assert message.attributes == {"kind": "new"}
    assert message.ordering_key == "ada"
    assert ps.decode(message, Order) == ADA
    assert len(server.requests) == asked, "a message costs no request"


def test_a_topics_schema_is_stored_and_shown(ps: PubSub) -> None:
    topic = ps.create_topic("orders", schema=Order)
    assert topic.options.record_schema == TopicSchema(
        format="avro", subject="orders-value", framing="confluent"
    )
    ps.create_topic("orders", schema=Order, exist_ok=True)
    ps.create_topic("orders", exist_ok=True)
    with pytest.raises(AlreadyExists, match="schema"):
        ps.create_topic(
            "orders", schema=TopicSchema(file=None, subject="orders-value", framing="header"), exist_ok=True
        )
    assert ps.update_topic("orders", schema=None).options.record_schema is None
    with pytest.raises(FailedPrecondition, match=r"topic 'orders' has no schema: update_topic"):
        topic.publish_record(ADA)


def test_topics_without_a_schema_are_stored_as_before(ps: PubSub) -> None:
    assert "record_schema" not in ps.create_topic("plain").options.model_dump_json()


def test_a_client_that_did_not_declare_asks_for_the_last_schema(server: RegistryServer) -> None:
    first = PubSub.in_memory(schemas=server.address)
    with first as ps:
        ps.create_topic("orders", schema=Order)
        cluster = ps._cluster
        cluster.records.forget("orders")
        cluster.records._writers.clear()
        server.requests.clear()
        topic = ps.topic("orders")
        ps.create_subscription("billing", "orders")
        for _ in range(3):
            topic.publish_record({"user_id": "ada", "total": 1}).result(5)
        assert server.requests == ["GET /subjects/orders-value/versions/latest"]
        assert [each.record(Order).total for each in received(ps, "billing", 3)] == [1, 1, 1]


def test_a_writer_of_the_former_version_goes_on(ps: PubSub, server: RegistryServer) -> None:
    class Old(AvroBaseModel):
        user_id: str

        class Meta:
            schema_name = "Order"

    class New(AvroBaseModel):
        user_id: str
        note: str = ""

        class Meta:
            schema_name = "Order"

    topic = ps.create_topic("orders", schema=Old)
    ps.create_subscription("billing", "orders")
    ps.update_topic("orders", schema=New)
    topic.publish_record(Old(user_id="a")).result(5)
    topic.publish_record(New(user_id="b", note="x")).result(5)
    bodies = sorted(received(ps, "billing", 2), key=lambda each: each.data)
    assert [each.data[4] for each in bodies] == [1, 2]
    assert [each.record(New).note for each in bodies] == ["", "x"]
    assert [each.record(Old).user_id for each in bodies] == ["a", "b"]


@pytest.mark.parametrize(
    "given", ["order.avsc", TopicSchema(file="order.avsc", subject="shop-order", framing="header")]
)
def test_a_file_declares(
    ps: PubSub, given: str | TopicSchema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("order.avsc").write_text(TEXT)
    topic = ps.create_topic("orders", schema=given)
    ps.create_subscription("billing", "orders")
    topic.publish_record(Plain(user_id="ada", total=3)).result(5)
    topic.publish_record({"user_id": "bob"}).result(5)
    found = sorted((each.record(Plain) for each in received(ps, "billing", 2)), key=lambda each: each.user_id)
    assert found == [Plain(user_id="ada", total=3), Plain(user_id="bob", total=0)]


def test_a_subject_declares(ps: PubSub, server: RegistryServer) -> None:
    server.add("shop-order", "AVRO", TEXT)
    topic = ps.create_topic("orders", schema="shop-order")
    assert topic.options.record_schema == TopicSchema(
        format="avro", subject="shop-order", framing="confluent"
    )
    with pytest.raises(NotFound, match=r"shop-ordre.*Declare the schema with a class"):
        ps.create_topic("other", schema="shop-ordre")


def test_a_subject_that_is_declared_again_gives_its_new_version(ps: PubSub, server: RegistryServer) -> None:
    subject = "shop-order"
    server.add(subject, "AVRO", TEXT)
    topic = ps.create_topic("orders", schema=subject)
    topic.publish_record({"user_id": "ada"}).result(10)
    later = json.loads(TEXT)
    later["fields"].append({"name": "note", "type": "string", "default": ""})
    number = server.add(subject, "AVRO", json.dumps(later))
    with pytest.raises(SchemaError, match="note"):
        topic.publish_record({"user_id": "ada", "note": "new"})
    ps.update_topic("orders", schema=subject)
    topic.publish_record({"user_id": "ada", "note": "new"}).result(10)
    (message,) = topic.tail(1)
    assert message.data[:5] == b"\0" + number.to_bytes(4, "big")


@pytest.mark.parametrize("value", [Customer("ada"), Plain(user_id="ada", total=1)])
def test_a_model_becomes_a_json_schema(ps: PubSub, value: object) -> None:
    topic = ps.create_topic("orders", schema=type(value))
    assert topic.options.record_schema == TopicSchema(
        format="json", subject="orders-value", framing="confluent"
    )
    ps.create_subscription("billing", "orders")
    topic.publish_record(value).result(5)
    (message,) = received(ps, "billing")
    assert message.record(type(value)) == value


def test_a_folder_needs_no_registry(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "v1.avsc").write_text(TEXT)
    with PubSub.in_memory(schemas=tmp_path) as ps:
        topic = ps.create_topic("orders", schema="orders")
        ps.create_subscription("billing", "orders")
        topic.publish_record({"user_id": "ada", "total": 1}).result(5)
        (message,) = received(ps, "billing")
        assert message.headers == [(RECORD_HEADER, b"orders/1")]
        assert message.record() == {"user_id": "ada", "total": 1}
        with pytest.raises(InvalidArgument, match="framing 'confluent' has room for a registry's number"):
            ps.create_topic("x", schema=TopicSchema(subject="orders", framing="confluent"))
        with pytest.raises(NotFound, match="write it to v2"):
            ps.create_topic("orders2", schema=TopicSchema(subject="orders", file=str(_other(tmp_path))))


def test_a_folder_that_is_behind_makes_no_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "new" / "orders").mkdir(parents=True)
    file = tmp_path / "new" / "orders" / "v1.avsc"
    file.write_text(TEXT)
    (tmp_path / "old").mkdir()
    behind = open_records(tmp_path / "old")
    with PubSub.in_memory(schemas=tmp_path / "new") as ps:
        topic = ps.create_topic("orders", schema="orders")
        body, headers = topic._writer().encode({"user_id": "ada", "total": 1})
        named = [(name, value.encode()) for name, value in headers.items()]
        with pytest.raises(FailedPrecondition, match="ship the folder to readers before publishers"):
            behind.decode(named, body)
        with pytest.raises(NotFound, match=r"write the schema there$"):
            ps.create_topic("other", schema="nix")
        assert ps.create_topic("again", schema=TopicSchema(subject="orders", file=str(file))).name == "again"
        with pytest.raises(NotFound, match="write the schema there"):
            ps.create_topic("paths", schema=file)
        file.write_text("{")
    with pytest.raises(SchemaError, match=r"v1\.avsc: schema: not an Avro schema"):
        open_records(tmp_path / "new").decode(named, body)


def _other(folder: Path) -> Path:
    file = folder / "other.avsc"
    file.write_text(TEXT.replace("total", "sum"))
    return file


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"user_id": "ada", "total": "x"}, "total: "),
        (
            {"user_id": "ada", "total": 1, "items": [{"sku": "a", "price": 1.0}, {"sku": "b", "price": "x"}]},
            "items[1].price: ",
        ),
        ({"user_id": "ada", "total": 1, "more": 2}, "more: "),
        ({"total": 1}, "user_id: "),
        (17, ""),
        (None, ""),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(ps: PubSub, value: object, said: str) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    with pytest.raises(SchemaError, match="topic 'orders', schema 'orders-value'") as refused:
        topic.publish_record(value, ordering_key="ada")
    assert said in refused.value.message
    topic.publish_record(ADA, ordering_key="ada").result(5)
    assert len(received(ps, "billing", 2)) == 1, "nothing was sent, and the key goes on"


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (b"hello", {}, "doesn't say its schema"),
        (b"\0\0\0\0\7x", {}, "schema 7: it isn't there"),
        (b"\0\0\0\0\1\2", {}, "schema 1: "),
        (b"\0\0\0\0\1\2a\2\0x", {}, "left over"),
        (b"x", {RECORD_HEADER: "nonsense"}, "neither a number"),
    ],
)
def test_a_body_that_is_no_record_becomes_a_dead_letter_at_once(
    ps: PubSub, body: bytes, headers: dict[str, str], said: str
) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=5)
    billing = ps.create_subscription("billing", "orders", message_ordering=True, dead_letter=policy)
    topic.publish(body, ordering_key="ada", attributes=headers).result(5)
    topic.publish_record(ADA, ordering_key="ada").result(5)
    seen: list[object] = []

    def handle(message: Message) -> None:
        seen.append(message.record(Order))
        message.ack()

    with billing.pull(handle):
        until(lambda: seen)
    (letter,) = billing.dead_letters()
    assert seen == [ADA]
    assert letter.data == body
    assert letter.attributes == headers
    assert letter.error_class == "BadRecord"
    assert said in letter.error
    assert letter.attempts == 1


def test_a_registry_that_is_away_is_no_fault_of_the_message(ps: PubSub, server: RegistryServer) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    topic.publish_record(ADA).result(5)
    (message,) = received(ps, "billing")
    with PubSub.in_memory(schemas={"url": server.address, "max.retries": 0}) as other, server.failing(503):
        with pytest.raises(RegistryUnavailable, match=server.address):
            other.decode(message)
        topic.publish_record(ADA).result(5)  # it has begun
        with pytest.raises(RegistryUnavailable):
            ps.create_topic("more", schema=Order)
    assert [each.name for each in ps.list_topics()] == ["orders"]


def test_without_a_place_for_schemas_nothing_is_read_or_declared() -> None:
    with PubSub.in_memory() as ps:
        topic = ps.create_topic("orders")
        ps.create_subscription("billing", "orders")
        topic.publish(b"\0\0\0\0\1x").result(5)
        (message,) = received(ps, "billing")
        calls: list[Callable[[], object]] = [
            message.record,
            lambda: ps.decode(message),
            lambda: ps.create_topic("x", schema=Order),
        ]
        for call in calls:
            with pytest.raises(FailedPrecondition, match="set KAFKA_PUBSUB_SCHEMAS"):
                call()
        with pytest.raises(FailedPrecondition, match="has no schema"):
            topic.publish_record(ADA)


@pytest.mark.parametrize("given", [17, b"order.avsc", int])
def test_a_schema_of_another_kind_is_refused(ps: PubSub, given: object) -> None:
    with pytest.raises(InvalidArgument, match="schema"):
        ps.create_topic("orders", schema=given)  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_named(ps: PubSub) -> None:
    with pytest.raises(InvalidArgument, match=r"schema: nowhere\.avsc can't be read"):
        ps.create_topic("orders", schema="nowhere.avsc")
    with pytest.raises(InvalidArgument, match="ends neither in"):
        ps.create_topic("orders", schema=TopicSchema(file="order.txt"))


def test_a_client_that_may_not_create_registers_nothing(server: RegistryServer) -> None:
    server.add("orders-value", "AVRO", TEXT)
    with (
        PubSub.in_memory(schemas=server.address, create=False) as ps,
        pytest.raises(NotFound, match="orders-value"),
    ):
        ps._cluster.declare_schema("orders", Order)
    assert [each for each in server.requests if "POST" in each] == ["POST /subjects/orders-value"]
    assert len(server.schemas) == 1


def test_messages_that_were_only_looked_at_are_records_too(ps: PubSub) -> None:
    topic = ps.create_topic("orders", schema=Order)
    billing = ps.create_subscription("billing", "orders")
    topic.publish_record(ADA).result(5)
    assert [each.record(Order) for each in topic.tail(1)] == [ADA]
    assert [each.record(Order) for each in billing.peek()] == [ADA]


PROTO = """syntax = "proto3";
package shop;
message Order {
  string user_id = 1;
  int64 total = 2;
  message Line { string sku = 1; }
}
message Refund { string user_id = 1; }
"""


def message_class(name: str) -> type[Any]:
    """The class that protoc generates for a message of the schema."""
    pool, proto = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorProto()
    codec = parse_schema("protobuf", PROTO)
    assert isinstance(codec, ProtobufCodec)
    codec._file.CopyToProto(proto)
    proto.name = "order.proto"
    for message in proto.message_type:  # generated classes don't have what only the compiler fills in
        for field in message.field:
            field.ClearField("json_name")
    pool.Add(proto)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found


@pytest.mark.parametrize(
    ("name", "frame"), [("shop.Order", b"\0"), ("shop.Refund", b"\2\2"), ("shop.Order.Line", b"\4\0\0")]
)
def test_protobuf_messages_on_both_ends(ps: PubSub, server: RegistryServer, name: str, frame: bytes) -> None:
    kind = message_class(name)
    topic = ps.create_topic("orders", schema=kind)
    ps.create_subscription("billing", "orders")
    field = "sku" if name.endswith("Line") else "user_id"
    topic.publish_record(kind(**{field: "ada"})).result(5)
    (message,) = received(ps, "billing")
    assert message.data == b"\0\0\0\0\1" + frame + b"\n\3ada"
    assert message.record(kind) == kind(**{field: "ada"})
    found = message.record()
    assert isinstance(found, dict)
    assert found[field] == "ada"
    asked = len(server.requests)
    topic.publish_record({field: "bob"}).result(5)
    assert received(ps, "billing")[0].record(kind) == kind(**{field: "bob"})
    assert len(server.requests) == asked


def test_a_message_of_another_kind_is_a_bad_record(ps: PubSub) -> None:
    topic = ps.create_topic("orders", schema=message_class("shop.Order"))
    ps.create_subscription("billing", "orders")
    topic.publish_record(message_class("shop.Order")(user_id="ada")).result(5)
    topic.publish(b"\0\0\0\0\1\2\x10").result(5)
    one, other = sorted(received(ps, "billing", 2), key=lambda each: each.data)
    with pytest.raises(BadRecord, match=r"the message is shop.Refund, and the schema's is shop\.Order"):
        one.record(message_class("shop.Refund"))
    with pytest.raises(BadRecord, match=r"there is no message \[8\]"):
        other.record()


def test_a_proto_file_in_a_folder_is_the_generated_classes_schema(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "v1.proto").write_text("// the order\n" + PROTO)
    kind = message_class("shop.Order")
    with PubSub.in_memory(schemas=tmp_path) as ps:
        topic = ps.create_topic("orders", schema=kind)
        ps.create_subscription("billing", "orders")
        topic.publish_record(kind(user_id="ada", total=3)).result(5)
        (message,) = received(ps, "billing")
        assert message.headers == [(RECORD_HEADER, b"orders/1")]
        assert message.record(kind).total == 3
        refunds = ps.create_topic("refunds", schema=TopicSchema(subject="orders"))
        with pytest.raises(SchemaError, match="first message"):
            refunds.publish_record(message_class("shop.Refund")(user_id="ada"))


def test_json_becomes_a_record_of_each_format(ps: PubSub) -> None:
    for name, kind in (("a", Order), ("j", Plain), ("p", message_class("shop.Order"))):
        topic = ps.create_topic(name, schema=kind)
        ps.create_subscription(name, name)
        topic.publish_record(topic._writer().read_json(b'{"user_id": "ada", "total": 3}')).result(5)
        assert received(ps, name)[0].record(kind).total == 3
        for text in (b"{", b"[]", b'{"user_id": "ada", "total": "x"}'):
            with pytest.raises(SchemaError):
                topic._writer().read_json(text)


def test_a_process_short_of_memory_does_not_blame_the_record(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    topic.publish_record(ADA).result(5)
    (message,) = received(ps, "billing")

    def fail(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(avro.AvroCodec, "_made", property(lambda self: fail))
    monkeypatch.setattr(avro, "schemaless_reader", fail)
    with pytest.raises(MemoryError):
        message.record(Order)


def test_what_a_header_says_holds_for_its_message_only(ps: PubSub) -> None:
    """The body of a message with a header may begin like the frame of another schema."""
    records, topic = ps._cluster.records, ps.create_topic("orders")
    ps.create_subscription("billing", "orders")

    def registered(subject: str, kind: str) -> bytes:
        fields = [{"name": subject, "type": kind}]
        text = json.dumps({"type": "record", "name": "R", "fields": fields})
        return frame(records.source.register(subject, parse_schema("avro", text)).id.number)

    number, raw = registered("a", "int"), registered("b", "bytes")
    body = number + b"zz"
    assert records.decode([(CONFLUENT_HEADER, raw + b"\x0e")], body) == {"b": body}
    topic.publish(number + b"\x02").result(5)
    assert received(ps, "billing")[0].record() == {"a": 1}


def test_a_class_that_pydantic_cannot_check_is_a_mistake_of_the_program(ps: PubSub) -> None:
    class Unknown:
        pass

    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    topic.publish_record(ADA).result(5)
    (message,) = received(ps, "billing")
    with pytest.raises(InvalidArgument, match="isn't a type that pydantic can check"):
        message.record(Unknown)


def test_a_copied_header_of_another_topic_is_replaced(ps: PubSub, server: RegistryServer) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    copied = {RECORD_HEADER: "77", "kind": "new"}
    topic.publish_record(ADA, attributes=copied).result(5)
    (message,) = received(ps, "billing")
    assert message.attributes == {"kind": "new"}
    assert message.record(Order) == ADA
    assert copied == {RECORD_HEADER: "77", "kind": "new"}


def test_a_class_with_another_framing_and_subject(ps: PubSub) -> None:
    wanted = TopicSchema(kind=Order, subject="shop-order", framing="header")
    topic = ps.create_topic("orders", schema=wanted)
    assert topic.options.record_schema == TopicSchema(format="avro", subject="shop-order", framing="header")
    ps.create_subscription("billing", "orders")
    topic.publish_record(ADA).result(5)
    (message,) = received(ps, "billing")
    assert message.attributes == {RECORD_HEADER: "1"}
    assert message.record(Order) == ADA
    for wrong in (TopicSchema(kind=Order, file="a.avsc"), TopicSchema(format="json", file="a.avsc")):
        with pytest.raises(InvalidArgument):
            ps.create_topic("more", schema=wrong)


def test_a_topic_that_is_refused_registers_nothing(ps: PubSub, server: RegistryServer) -> None:
    ps.create_topic("orders")
    for exist_ok in (False, True):
        with pytest.raises(AlreadyExists):
            ps.create_topic("orders", schema=Order, exist_ok=exist_ok)
    assert not server.schemas


def test_a_record_of_another_message_blames_not_the_one_in_hand(ps: PubSub) -> None:
    topic = ps.create_topic("orders", schema=Order)
    ps.create_topic("dead")
    policy = DeadLetterPolicy(topic="dead", max_attempts=2)
    billing = ps.create_subscription("billing", "orders", dead_letter=policy)
    bad = ps.create_topic("bad")
    bad.publish(b"hello").result(5)
    topic.publish_record(ADA).result(5)
    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt == 1:
            next(iter(bad.tail(1))).record()
        message.ack()

    with billing.pull(handle):
        until(lambda: len(attempts) == 2)
    assert attempts == [1, 2]


def test_a_schema_that_no_codec_can_be_made_of_is_an_error_of_ours(
    ps: PubSub, server: RegistryServer
) -> None:
    for text in (
        '{"type": "enum", "name": "E", "symbols": []}',
        '{"type": "fixed", "name": "F", "size": "x"}',
    ):
        with pytest.raises(SchemaError):
            parse_schema("avro", text)


def test_a_message_with_attributes_is_decoded_by_the_decoder_that_was_made(
    ps: PubSub, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[object]()
    make = AvroCodec.decoder

    def noting(
        self: AvroCodec, kind: type | None, reader: Codec | None, begin: int
    ) -> Callable[[bytes], object]:
        made.append(begin)
        return make(self, kind, reader, begin)

    topic = ps.create_topic("orders", schema=Order)
    ps.create_subscription("billing", "orders")
    topic.publish_record(ADA, attributes={"traceparent": "00-1"}).result(timeout=10)
    (message,) = received(ps, "billing")
    message.record(Order)
    monkeypatch.setattr(AvroCodec, "decoder", noting)
    assert [message.record(Order) for _ in range(3)] == [ADA] * 3
    assert made == []
