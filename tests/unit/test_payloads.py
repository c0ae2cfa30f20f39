"""Typed bodies: what pydantic can serialise is published, and comes back as the type that is asked for."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from kafka_pubsub import FailedPrecondition, InvalidArgument, Message, PubSub
from kafka_pubsub.payloads import encode_json

AT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ID = UUID("12345678123456781234567812345678")


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    price: Decimal
    at: datetime


class Order(BaseModel):
    id: UUID
    lines: list[Line]
    colour: Colour = Colour.RED
    total: int = Field(alias="sum")


@dataclasses.dataclass
class Refund:
    id: UUID
    amount: Decimal


class Note(TypedDict):
    text: str


ORDER = Order(id=ID, lines=[Line(price=Decimal("1.50"), at=AT)], sum=3)


def came_back(ps: PubSub, value: object) -> Message:
    ps.create_topic("orders", exist_ok=True)
    ps.topic("orders").publish_json(value).result(10)
    (message,) = ps.topic("orders").tail(1)
    return message


def test_a_model_comes_back_as_itself(pubsub: PubSub) -> None:
    assert came_back(pubsub, ORDER).json(Order) == ORDER


def test_a_dataclass_and_a_typed_dict_come_back_as_themselves(pubsub: PubSub) -> None:
    refund = Refund(ID, Decimal("9.99"))
    assert came_back(pubsub, refund).json(Refund) == refund
    note: Note = {"text": "größer"}
    assert came_back(pubsub, note).json(Note) == note


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"at": AT, "id": ID}, b'{"at":"2026-05-04T03:02:01Z","id":"12345678-1234-5678-1234-567812345678"}'),
        ([Decimal("1.10"), Colour.RED], b'["1.10","red"]'),
        (
            {"order": Refund(ID, Decimal(1))},
            b'{"order":{"id":"12345678-1234-5678-1234-567812345678","amount":"1"}}',
        ),
        ({"ä": [1, None, True]}, '{"ä":[1,null,true]}'.encode()),
    ],
)
def test_values_within_plain_ones_are_encoded_too(value: object, body: bytes) -> None:
    assert encode_json(value) == body


@pytest.mark.parametrize("value", [object(), {"a": object()}, float("nan"), lambda: None])
def test_what_has_no_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="obj can't be published as JSON"):
        encode_json(value)


def test_a_body_that_is_not_of_the_type_names_the_field(pubsub: PubSub) -> None:
    message = came_back(pubsub, {"id": "x", "lines": [], "sum": 1})
    with pytest.raises(FailedPrecondition, match=r"isn't a valid Order: [\s\S]*id[\s\S]*valid UUID"):
        message.json(Order)
    assert message.json() == {"id": "x", "lines": [], "sum": 1}


def test_publish_points_at_publish_json(pubsub: PubSub) -> None:
    topic = pubsub.create_topic("orders")
    with pytest.raises(InvalidArgument, match=r"data must be bytes, not dict: publish_json\(data\)"):
        topic.publish({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"data must be bytes, not Order: publish_json\(data\)"):
        topic.publish(ORDER)  # type: ignore[arg-type]
