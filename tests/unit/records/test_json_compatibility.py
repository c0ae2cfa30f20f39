"""What surely breaks between two JSON Schemas, and what is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

from kafka_pubsub.records.json_compatibility import compare_json


def shape(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (shape(a=TEXT, b=TEXT), shape(a=TEXT)),
        (shape(a=TEXT), shape(a=TEXT, b=TEXT)),
        (shape(a={"type": "number"}), shape(a=NUMBER)),
        (shape(a={"type": ["string", "null"]}), shape(a=TEXT)),
        (shape(a={"anyOf": [TEXT, {"type": "null"}]}), shape(a=TEXT)),
        (shape(a={"enum": [1, 2]}), shape(a={"enum": [1]})),
        (shape(a={"type": "string", "maxLength": 9}), shape(a={"type": "string", "maxLength": 5})),
        (shape(a={"$ref": "other.json"}), shape(a=TEXT)),
        ({**shape(a=TEXT, b=TEXT), **CLOSED}, {**shape(a=TEXT), **CLOSED}),
    ],
)
def test_what_breaks_nothing(new: Any, old: Any) -> None:
    assert compare_json(json.dumps(new), json.dumps(old)) == []


@pytest.mark.parametrize(
    ("new", "old", "field", "problem"),
    [
        (shape(["a"], a=TEXT), shape(a=TEXT), "a", "required"),
        (shape(a=TEXT), shape(a=NUMBER), "a", "may have integer, and only string is taken"),
        (shape(a=NUMBER), shape(a={"type": "number"}), "a", "may have number"),
        (shape(a=TEXT), shape(a={"anyOf": [TEXT, {"type": "null"}]}), "a", "may have null, and only string"),
        (shape(a={"enum": [1]}), shape(a={"enum": [1, 2]}), "a", "2 isn't taken"),
        (shape(a={"enum": [1]}), shape(a=NUMBER), "a", "only some values"),
        (
            shape(a={"type": "string", "maxLength": 5}),
            shape(a={"type": "string", "maxLength": 9}),
            "a",
            "maxLength is 5",
        ),
        (
            shape(a={"type": "integer", "minimum": 1}),
            shape(a=NUMBER),
            "a",
            "minimum is 1, and of bodies it isn't set",
        ),
        ({**shape(a=TEXT), **CLOSED}, {**shape(a=TEXT, b=TEXT), **CLOSED}, "b", "isn't taken"),
        (shape(a={"items": TEXT}), shape(a={"items": NUMBER}), "a[]", "may have integer"),
        (shape(a=shape(b=TEXT)), shape(a=shape(b=NUMBER)), "a.b", "may have integer"),
    ],
)
def test_what_breaks_is_named(new: Any, old: Any, field: str, problem: str) -> None:
    ((named, said),) = compare_json(json.dumps(new), json.dumps(old))
    assert named == field
    assert problem in said


def test_models_of_pydantic_are_compared_through_their_references() -> None:
    class Line(BaseModel):
        price: int

    class Order(BaseModel):
        lines: list[Line]
        note: str | None = None

    class NewLine(BaseModel):
        price: str

    class NewOrder(BaseModel):
        lines: list[NewLine]
        note: str = ""
        tags: list[str] = Field(min_length=1)

    old, new = (json.dumps(each.model_json_schema()) for each in (Order, NewOrder))
    assert dict(compare_json(new, old)) == {
        "lines[].price": "a body may have integer, and only string is taken",
        "note": "a body may have null, and only string is taken",
        "tags": "it is required, and bodies may lack it",
    }


def test_a_schema_that_contains_itself_is_compared() -> None:
    def tree(leaf: Any) -> str:
        node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "leaf": leaf}}
        return json.dumps({"$ref": "#/$defs/Node", "$defs": {"Node": node}})

    assert compare_json(tree(TEXT), tree(TEXT)) == []
    assert compare_json(tree(TEXT), tree(NUMBER))[0][0].endswith("leaf")
    assert compare_json('{"$ref": "#"}', '{"$ref": "#"}') == []


def test_many_references_to_one_part_cost_no_time() -> None:
    parts = {
        f"P{n}": shape(a={"$ref": f"#/$defs/P{n + 1}"}, b={"$ref": f"#/$defs/P{n + 1}"}) for n in range(60)
    }

    def text(leaf: Any) -> str:
        return json.dumps({"$ref": "#/$defs/P0", "$defs": {**parts, "P60": leaf}})

    assert compare_json(text(TEXT), text(TEXT)) == []
    assert len(compare_json(text(TEXT), text(NUMBER))) == 100
