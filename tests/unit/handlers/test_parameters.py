"""What a handler's parameters are filled with, and which are refused before a message is read."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from fast_depends import Depends
from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from kafka_pubsub import BadRecord, FailedPrecondition, InvalidArgument, Message
from kafka_pubsub.handlers.parameters import BAD_BODIES, explain_body, place_of, resolve
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.looks.message import NoLease
from kafka_pubsub.records.opening import open_records


class Order(BaseModel):
    user_id: str
    total: int


@dataclasses.dataclass
class Refund:
    amount: float


class Note(TypedDict):
    text: str


def message(body: bytes, key: bytes | None = b"ada") -> Message:
    record = MemoryRecord("orders", 0, 7, key, body, None, 0, 0, False)
    return Message(record, NoLease(Lane(0, True)))


def record(body: bytes, headers: list[tuple[str, bytes | None]], schemas: str | None) -> Message:
    stored = MemoryRecord("orders", 0, 7, b"ada", body, headers, 0, 0, False)
    return Message(stored, NoLease(Lane(0, True), open_records(schemas)))


def filled(function: Callable[..., object], body: bytes, **names: object) -> object:
    """What the handler returns for the body."""
    parameters = resolve(function, "subscriber 'x'", batch=False, names=names)
    return parameters.invoke(*parameters.prepare()(message(body)))


def test_each_kind_of_annotation_gets_its_part_of_the_message() -> None:
    def model(order: Order) -> object:
        return order

    def dataclass(refund: Refund) -> object:
        return refund

    def typed_dict(note: Note) -> object:
        return note

    def plain(data: dict[str, int]) -> object:
        return data

    def listed(data: list[int]) -> object:
        return data

    def text(data: str) -> object:
        return data

    def raw(data: bytes) -> object:
        return data

    def either(data: Order | int) -> object:
        return data

    def limited(data: Annotated[int, Field(gt=3)]) -> object:
        return data

    assert filled(model, b'{"user_id":"ada","total":1}') == Order(user_id="ada", total=1)
    assert filled(dataclass, b'{"amount":1.5}') == Refund(1.5)
    assert filled(typed_dict, b'{"text":"a"}') == {"text": "a"}
    assert filled(plain, b'{"a":1}') == {"a": 1}
    assert filled(listed, b"[1,2]") == [1, 2]
    assert filled(text, "größe".encode()) == "größe"
    assert filled(raw, b"\xff") == b"\xff"
    assert filled(either, b"4") == 4
    assert filled(limited, b"4") == 4


def test_the_message_and_the_body_can_both_be_asked_for_in_any_order() -> None:
    def handle(message: Message, order: Order, raw: bytes) -> object:
        return message.ordering_key, order.total, len(raw)

    assert filled(handle, b'{"user_id":"a","total":2}') == ("ada", 2, 25)


def test_defaults_stay_where_nothing_fills_them() -> None:
    def handle(order: Order, clock: Callable[[], float] = float, *, limit: Any = 5, raw: bytes) -> object:
        return order.total, clock(), raw

    def handle_untyped(order: Order, limit=5) -> object:  # type: ignore[no-untyped-def]
        return order.total, limit

    assert filled(handle, b'{"user_id":"a","total":2}')[:2] == (2, 0.0)  # type: ignore[index]
    assert filled(handle_untyped, b'{"user_id":"a","total":2}') == (2, 5)


def test_methods_and_objects_are_handlers_too() -> None:
    class Shop:
        def charge(self, order: Order) -> object:
            return order.total

        def __call__(self, order: Order) -> object:
            return order.total + 1

    assert filled(Shop().charge, b'{"user_id":"a","total":2}') == 2
    assert filled(Shop(), b'{"user_id":"a","total":2}') == 3


def test_a_decorated_function_keeps_its_annotations() -> None:
    def doubled(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int:
            return 2 * function(*args, **kwargs)

        return wrapper

    @doubled
    def handle(order: Order) -> int:
        return order.total

    assert filled(handle, b'{"user_id":"a","total":2}') == 4


def test_a_model_that_is_local_to_a_function_is_found() -> None:
    class Local(BaseModel):
        a: int

    def handle(value: Local) -> object:
        return value

    assert filled(handle, b'{"a":1}', Local=Local) == Local(a=1)


def test_a_batch_gets_lists() -> None:
    def handle(orders: list[Order], messages: list[Message]) -> object:
        return orders, messages

    parameters = resolve(handle, "x", batch=True, names={})
    assert parameters.prepare()(message(b'{"user_id":"a","total":2}'))[0] == Order(user_id="a", total=2)


def no_annotation(order) -> None:  # type: ignore[no-untyped-def]
    """Nothing says what it wants."""


def not_fillable(lock: Callable[[int], int]) -> None:
    """A function is in no message."""


def unknown_name(order: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Its annotation isn't imported."""


def single(order: Order) -> None:
    """One message at a time."""


def several(messages: list[Message]) -> None:
    """Many messages at once."""


@pytest.mark.parametrize(
    ("function", "batch", "text"),
    [
        (
            no_annotation,
            False,
            "parameter 'order' has no annotation, so nothing can fill it: annotate it with Message",
        ),
        (not_fillable, False, r"parameter 'lock' is .*, which can't be filled from a message: .* app.state"),
        (unknown_name, False, "an annotation can't be resolved .*Nowhere.*: import the name"),
        (single, True, r"parameter 'order' is Order, and with batch= .* annotate it with list\[Order\]"),
        (
            several,
            False,
            r"parameter 'messages' is list\[Message\], and a handler gets one .* give batch=100",
        ),
    ],
)
def test_what_cannot_be_filled_is_named_with_its_remedy(
    function: Callable[..., object], batch: bool, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"^subscriber 'x': .*{text}|^subscriber 'x': {text}"):
        resolve(function, "subscriber 'x'", batch=batch, names={})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"user_id":"a","total":"many"}', "the body isn't Order: total: Input should be a valid integer"),
        (b'{"total":1}', r"the body isn't Order: user_id: Field required"),
        (b"nope", "the body isn't Order: Invalid JSON"),
        (b"", "the body isn't Order: Invalid JSON"),
        (b'{"user_id":"' + b"x" * 5000 + b'","total":[]}', r"total: .* \(got \[\]\)"),
    ],
)
def test_a_wrong_body_is_explained_by_the_paths_of_its_fields(body: bytes, text: str) -> None:
    with pytest.raises(BAD_BODIES) as raised:
        filled(single, body)
    assert __import__("re").search(text, explain_body(raised.value, "Order"))
    assert len(explain_body(raised.value, "Order")) < 500


def test_many_wrong_fields_are_cut() -> None:
    def handle(values: list[int]) -> None: ...

    with pytest.raises(BAD_BODIES) as raised:
        filled(handle, b'["a","b","c","d","e","f","g"]')
    text = explain_body(raised.value, "list[int]")
    assert "0: " in text
    assert text.endswith("; and 2 more")


def test_a_body_that_is_no_text_is_explained() -> None:
    def handle(text: str) -> None: ...

    with pytest.raises(BAD_BODIES) as raised:
        filled(handle, b"\xff\xfe")
    assert "can't decode byte 0xff" in explain_body(raised.value, "text in UTF-8")


def test_a_function_is_named_by_its_place() -> None:
    assert place_of(single).startswith("single() in ")
    assert place_of(single).rpartition(":")[2].isdigit()


def rate() -> float:
    """What a handler depends on."""
    return 0.5


def test_depends_of_fast_depends_fills_what_it_declares() -> None:
    def handle(order: Order, share: Annotated[float, Depends(rate)], message: Message) -> object:
        return order.total * share, message.ordering_key

    assert filled(handle, b'{"user_id":"a","total":4}') == (2.0, "ada")


@pytest.fixture
def schemas(tmp_path: Path) -> str:
    (tmp_path / "orders").mkdir()
    fields = [{"name": "user_id", "type": "string"}, {"name": "total", "type": "long"}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    (tmp_path / "orders" / "v1.avsc").write_text(json.dumps(schema))
    return str(tmp_path)


RECORD: list[tuple[str, bytes | None]] = [("record-schema", b"orders/1")]


def order(found: Order) -> object:
    return found


def prepared(message: Message) -> object:
    parameters = resolve(order, "subscriber 'x'", batch=False, names={})
    return parameters.prepare()(message)[0]


def test_a_model_is_made_of_records_and_of_json_alike(schemas: str) -> None:
    ada = Order(user_id="ada", total=1)
    assert prepared(record(b"\x06ada\x02", RECORD, schemas)) == ada
    assert prepared(record(b'{"user_id":"ada","total":1}', [], schemas)) == ada
    assert prepared(record(b'{"user_id":"ada","total":1}', [], None)) == ada


def test_a_record_that_can_not_be_read_is_a_bad_body(schemas: str) -> None:
    for body, headers in ((b"\x06ad", RECORD), (b"x", [("record-schema", b"?")])):
        with pytest.raises(BadRecord) as refused:
            prepared(record(body, list(headers), schemas))
        assert isinstance(refused.value, BAD_BODIES)
        assert explain_body(refused.value, "Order").startswith("the body isn't Order: ")


def test_a_record_where_no_schemas_are_known_is_no_fault_of_the_body() -> None:
    for body, headers in ((b"\x06ada\x02", RECORD), (b"\0\0\0\0\1x", [])):
        with pytest.raises(FailedPrecondition, match="set KAFKA_PUBSUB_SCHEMAS") as missing:
            prepared(record(body, list(headers), None))
        assert not isinstance(missing.value, BAD_BODIES)


def test_a_protobuf_message_is_read_as_a_record_only(schemas: str) -> None:
    def handle(duration: Duration) -> object:
        return duration

    parameters = resolve(handle, "subscriber 'x'", batch=False, names={})
    assert parameters.body == "Duration"
    with pytest.raises(BadRecord, match="doesn't say its schema"):
        parameters.prepare()(record(b"{}", [], schemas))
