"""JSON, Protobuf and framed bodies as columns: bodies that can't be decoded stay, with their bytes and the reason."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from kafka_pubsub import BrokerUnavailable, InvalidArgument, NotFound, PermissionDenied, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
#: A later version of the schema; its readers get the default of missing fields.
TWO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "note", "type": "string", "default": "-"}, {"name": "id", "type": "long"}],
}


def read(spark: SparkSession, bodies: list[bytes | None], schema: Any, **more: Any) -> list[Row]:
    from spark.reading.decoding import decoded

    frame = spark.createDataFrame(list(enumerate(bodies)), "n int, data binary")
    found = decoded(frame, schema, **more)
    assert found.columns == ["n", "data", "record", "problem", *(["schema_id"] if "framing" in more else [])]
    rows = found.orderBy("n").collect()
    assert [None if row.data is None else bytes(row.data) for row in rows] == bodies
    # A record or a problem, never both.
    assert [row.record is None for row in rows] == [row.problem is not None for row in rows]
    return rows


def test_json_by_columns(spark: SparkSession) -> None:
    bodies = [
        b'{"id": 5, "amount": 12.5, "lines": [{"sku": "x"}], "other": 1}',
        b"{}",
        b'{"id": "five"}',
        b'{"id": 5} {"id": 6}',
        b'{"id": 5}, "id": 6',
        b'{"id": 5}] [',
        b'{"id": 5}} {',
        b'[{"id": 5}]',
        b"no JSON",
        b"",
        b"\xff{",
        None,
        b' {"id": 6}\n',
        b'{"id": 5},{"id": 6}',
        b'{"id": 5}],"x":[{"id": 6}',
        b"null",
        b'{"id": 5',
        b'{"lines": [{"sku": "x"}, 5]}',
    ]
    rows = read(spark, bodies, "id bigint, amount double, lines array<struct<sku: string>>")
    assert (rows[0].record.id, rows[0].record.amount, rows[0].record.lines[0].sku) == (5, 12.5, "x")
    assert rows[1].record.asDict() == {"id": None, "amount": None, "lines": None}
    assert [row.problem for row in rows[2:]] == [
        "has a value of another type than the schema says",
        *["isn't a JSON object"] * 8,
        "a tombstone has no body",
        None,
        *["isn't a JSON object"] * 4,
        "has a value of another type than the schema says",
    ]
    assert rows[12].record.id == 6


def test_json_is_parsed_once_for_each_body(spark: SparkSession) -> None:
    from spark.reading.decoding import decoded

    frame = spark.range(1).selectExpr("cast(to_json(struct(id)) AS binary) AS data")
    found = decoded(frame, "id bigint")
    plan = found._jdf.queryExecution().optimizedPlan().toString()
    # Another parse is only the last branch of a choice, for bodies that can't be read.
    assert plan.count("from_json(") == plan.count("lengthOfJsonArray") == plan.count("parseJson") == 1
    assert plan.index("THEN null WHEN") < plan.index("lengthOfJsonArray")


@pytest.mark.parametrize(
    ("schema", "function"), [("id bigint", "from_json("), (json.dumps(ONE), "from_avro(")]
)
def test_a_body_is_decoded_once_though_rows_are_chosen_by_its_problem(
    spark: SparkSession, schema: str, function: str
) -> None:
    from spark.reading.decoding import decoded

    frame = spark.range(1).selectExpr("id AS n", "cast(to_json(struct(id)) AS binary) AS data")
    found = decoded(frame, schema).where("problem is null and n < 5").select("record.*")
    plan = found._jdf.queryExecution().optimizedPlan().toString().lower()
    assert plan.count(function) == 1
    # What is chosen by other columns is chosen before.
    assert plan.index("explode(") < plan.index("< 5")


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@pytest.mark.parametrize(("framing", "size"), [("confluent", 4), ("apicurio", 8), ("apicurio3", 4)])
def test_framed_avro_by_the_schema_that_it_was_written_by(
    spark: SparkSession, framing: Any, size: int
) -> None:
    def framed(number: int, body: bytes) -> bytes:
        return b"\0" + number.to_bytes(size, "big") + body

    writers = {7: json.dumps(ONE), 2**31: json.dumps(TWO)}
    bodies = [
        framed(7, avro(ONE, {"id": 1})),
        framed(2**31, avro(TWO, {"id": 2, "note": "new"})),
        framed(8, avro(ONE, {"id": 3})),
        framed(2**31, b"\x40"),
        b"\1" + framed(7, avro(ONE, {"id": 1}))[1:],
        b"\0\0",
        None,
    ]
    rows = read(spark, bodies, json.dumps(TWO), framing=framing, writers=writers)
    assert [(row.record.id, row.record.note) for row in rows[:2]] == [(1, "-"), (2, "new")]
    assert rows[2].problem == "was written by schema 8, which isn't known"
    assert rows[3].problem.startswith("isn't a body of the schema (1 bytes)")
    assert [row.problem for row in rows[4:]] == [
        *[f"isn't framed as {framing} does it"] * 2,
        "a tombstone has no body",
    ]
    assert [row.schema_id for row in rows[:5]] == [7, 2**31, 8, 2**31, None]


def test_framed_json(spark: SparkSession) -> None:
    rows = read(spark, [b'\0\0\0\0\x09{"id": 5}', b'{"id": 5}'], "id bigint", framing="confluent")
    assert (rows[0].record.id, rows[0].schema_id) == (5, 9)
    assert rows[1].problem == "isn't framed as confluent does it"


def test_bare_bodies_whose_header_names_their_schema(spark: SparkSession, tmp_path: Path) -> None:
    from spark import schemas_in
    from spark.reading.decoding import decoded
    from spark.reading.protobuf import Protobuf
    from spark.run.bodies import Bodies

    (tmp_path / "orders").mkdir()
    for number, schema in enumerate((ONE, TWO), 1):
        (tmp_path / "orders" / f"v{number}.avsc").write_text(json.dumps(schema))
    told, order = descriptors()
    sale = order(id=5).SerializeToString()
    rows = [
        ("orders/1", avro(ONE, {"id": 1})),
        ("orders/2", avro(TWO, {"id": 2, "note": "new"})),
        ("lines/1", avro(ONE, {"id": 3})),
        ("orders/2", b"\x40"),
        (None, avro(ONE, {"id": 1})),
        ("orders/1", None),
    ]

    def read(rows: list[tuple[str | None, bytes | None]], schema: Any, **more: Any) -> list[Row]:
        given = [
            (n, body, {} if text is None else {"record-schema": text}) for n, (text, body) in enumerate(rows)
        ]
        frame = spark.createDataFrame(given, "n int, data binary, attributes map<string,string>")
        return decoded(frame, schema, framing="header", **more).orderBy("n").collect()

    found = read(rows, json.dumps(TWO), writers=schemas_in(tmp_path, "orders"))
    assert [(row.record.id, row.record.note) for row in found[:2]] == [(1, "-"), (2, "new")]
    assert [row.problem for row in found[2:]] == [
        "was written by schema lines/1, which isn't known",
        "isn't a body of the schema (1 bytes)",
        "has no header record-schema",
        "a tombstone has no body",
    ]
    assert [row.schema_id for row in found] == [text for text, _ in rows]
    # In a registry, as `registered` returns it.
    (row,) = read([("17", avro(ONE, {"id": 1}))], json.dumps(ONE), writers={17: json.dumps(ONE)})
    assert (row.record.id, row.schema_id) == (1, "17")
    (row,) = read([("3", sale)], Protobuf(told, "shop.Order"))
    assert (row.record.id, row.problem) == (5, None)
    (row,) = read([("3", b'{"id": 5}')], "id bigint")
    assert (row.record.id, row.problem) == (5, None)
    # By the options of a job, whose subject in a folder is the topic.
    given = [(avro(ONE, {"id": 6}), {"record-schema": "orders/1"})]
    frame = spark.createDataFrame(given, "data binary, attributes map<string,string>")
    (row,) = Bodies(json.dumps(TWO), "header", str(tmp_path)).decoded(frame, "orders").collect()
    assert (row.record.id, row.record.note) == (6, "-")


def descriptors() -> tuple[bytes, Any]:
    """A file with the messages Other and Order, and in Order the message Line; and the class of Order."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other").field.add(
        name="next", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=".shop.Other"
    )
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Line").field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=1)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_ENUM, label=1, type_name=".shop.Kind")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="GIFT", number=1)
    for number, (name, type_, label, type_name) in enumerate(
        (
            ("id", kinds.TYPE_UINT64, 1, ""),
            ("amount", kinds.TYPE_DOUBLE, 1, ""),
            ("raw", kinds.TYPE_BYTES, 1, ""),
            ("lines", kinds.TYPE_MESSAGE, 3, ".shop.Order.Line"),
            ("tags", kinds.TYPE_MESSAGE, 3, ".shop.Order.TagsEntry"),
            ("at", kinds.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("first", kinds.TYPE_MESSAGE, 1, ".shop.Order.Line"),
            ("counts", kinds.TYPE_SINT32, 3, ""),
        ),
        1,
    ):
        order.field.add(name=name, number=number, type=type_, label=label, type_name=type_name or None)
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    pool = descriptor_pool.DescriptorPool()
    for each in (times, file):
        pool.Add(each)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return descriptor_pb2.FileDescriptorSet(file=[times, file]).SerializeToString(), made


def test_protobuf_by_its_descriptors(spark: SparkSession) -> None:
    from spark.reading.protobuf import Protobuf

    told, order = descriptors()
    value = order(id=2**64 - 1, amount=12.5, raw=b"\xff", tags={"a": 1, "b": 7}, counts=[-1, 2])
    value.lines.add(sku="x")
    value.at.FromDatetime(datetime(2026, 1, 14, 12, tzinfo=UTC))
    good = value.SerializeToString()
    rows = read(spark, [good, b"", good[:-1], None], Protobuf(told, "shop.Order"))
    found = rows[0].record
    assert (found.id, found.amount, bytes(found.raw)) == (Decimal(2**64 - 1), 12.5, b"\xff")
    assert ([line.sku for line in found.lines], found.counts, found.first) == (["x"], [-1, 2], None)
    assert found.tags == {"a": "GIFT", "b": "7"}
    assert found["at"].timestamp() == datetime(2026, 1, 14, 12, tzinfo=UTC).timestamp()
    # All fields that aren't set: numbers have their default, messages are missing.
    assert (rows[1].record.id, rows[1].record.amount, rows[1].record["at"]) == (0, 0.0, None)
    assert rows[2].problem.startswith(f"isn't a body of the schema ({len(good) - 1} bytes)")
    # In Confluent's frame: message 1 of the file, and 0 in it, by count and numbers, which are signed.
    frame = b"\0\0\0\0\x05"
    line = order.Line(sku="y").SerializeToString()
    bodies: list[bytes | None] = [
        frame + b"\x04\x02\0" + line,
        frame + b"\0" + line,
        frame + b"\x04",
        frame[:3],
    ]
    rows = read(spark, bodies, Protobuf(told, "shop.Order.Line"), framing="confluent")
    assert rows[0].record.sku == "y"
    assert "it is message [0] of its file, and shop.Order.Line is [1, 0]" in rows[1].problem
    assert "what its frame says of the message is broken" in rows[2].problem
    assert rows[3].problem == "isn't framed as confluent does it"


@pytest.mark.parametrize(("framing", "size"), [("apicurio", 8), ("apicurio3", 4)])
def test_protobuf_in_apicurio_s_frame_is_named(spark: SparkSession, framing: Any, size: int) -> None:
    from spark.reading.protobuf import Protobuf

    told, order = descriptors()
    frame = b"\0" + (5).to_bytes(size, "big")
    line = order.Line(sku="y").SerializeToString()

    def named(name: bytes) -> bytes:
        ref = b"\x0a" + bytes([len(name)]) + name
        return frame + bytes([len(ref)]) + ref

    # The bytes that Apicurio's own classes write (serdes 2.6.5: DefaultIdHandler or Legacy4ByteIdHandler, then Ref).
    assert named(b"Line").hex() == "00" + "0" * (2 * size - 1) + "5060a044c696e65"

    bodies: list[bytes | None] = [
        named(b"Line") + line,
        named(b"Order") + line,
        # Without the name (apicurio.registry.serdes.protobuf.send-type-ref=false), cut off, and with no frame at all.
        frame + line,
        named(b"Line")[:-1],
        line,
    ]
    rows = read(spark, bodies, Protobuf(told, "shop.Order.Line"), framing=framing)
    assert (rows[0].record.sku, rows[0].schema_id) == ("y", 5)
    assert "it is message 'Order', and not 'Line'" in rows[1].problem
    for row in rows[2:4]:
        assert "doesn't name a message" in row.problem
    assert rows[4].problem == f"isn't framed as {framing} does it"


def test_what_can_t_be_a_schema_is_said(spark: SparkSession) -> None:
    from spark.reading.protobuf import Protobuf

    told, _ = descriptors()
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ("id nonsense", {}, SchemaError, "neither an Avro schema nor columns as SQL"),
        (Protobuf(told, "shop.Nothing"), {}, SchemaError, "there is no message shop.Nothing"),
        (Protobuf(b"nonsense", "shop.Order"), {}, SchemaError, "not a set of descriptors"),
        (Protobuf(told, "shop.Other"), {}, SchemaError, "shop.Other contains itself"),
        (json.dumps(ONE), {"framing": "confluent"}, InvalidArgument, "framed Avro needs the schemas"),
        (json.dumps(ONE), {"writers": {1: json.dumps(ONE)}}, InvalidArgument, "without a frame takes none"),
        ("id bigint", {"writers": {1: json.dumps(ONE)}}, InvalidArgument, "only framed Avro takes them"),
        ("id bigint", {"framing": "glue"}, InvalidArgument, "framing must be"),
    ]
    for schema, more, kind, said in refused:
        with pytest.raises(kind, match=said):
            read(spark, [], schema, **more)


@contextmanager
def registry(answers: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that gives these answers by path, or 404; a number is a status."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization')}")
            answer = answers.get(self.path.partition("?")[0], 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(b"" if isinstance(answer, int) else json.dumps(answer).encode())

        def log_message(self, *args: Any) -> None:
            """Nothing: the test judges the questions."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def test_the_schemas_of_a_subject() -> None:
    from spark import registered

    base = "/subjects/a%2Fb-value/versions"
    other = {"id": 1, "schema": "x", "references": [{"name": "x", "subject": "x", "version": 1}]}
    answers: dict[str, Any] = {base: [1, 3], f"{base}/1": {"id": 7, "schema": "one"}}
    answers |= {f"{base}/3": {"id": 9, "schema": "three", "references": []}, "/subjects/secret/versions": 401}
    answers |= {"/subjects/r/versions": [1], "/subjects/r/versions/1": other}
    answers["/subjects/broken/versions"] = 500
    with registry(answers) as (address, asked):
        assert registered(f"{address}/", "a/b-value", config={"basic.auth.user.info": "me:secret"}) == {
            7: "one",
            9: "three",
        }
        assert asked[0].startswith(base)
        assert asked[0].endswith(" Basic bWU6c2VjcmV0")
        for subject, kind in (
            ("none", NotFound),
            ("secret", PermissionDenied),
            ("r", SchemaError),
            ("broken", BrokerUnavailable),
        ):
            with pytest.raises(kind, match=f"subject '{subject}'"):
                registered(address, subject, config={"max.retries": 0})
    with pytest.raises(BrokerUnavailable, match=address):
        registered(address, "none", config={"max.retries": 0})
    with pytest.raises(InvalidArgument, match="isn't an address"):
        registered("file:///etc", "passwd")
