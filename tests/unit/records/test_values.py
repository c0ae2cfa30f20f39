"""Models as plain values and back, and the path of a field."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from kafka_pubsub import InvalidArgument
from kafka_pubsub.records.values import checker_of, json_checker_of, path_of, plain, plain_json, problem_of


class Model(BaseModel):
    raw: bytes


@dataclass
class Data:
    models: list[Model]


class Named(TypedDict):
    raw: bytes


def test_models_inside_of_other_values_are_plain_too() -> None:
    assert plain(Data([Model(raw=b"a")])) == {"models": [{"raw": b"a"}]}
    assert plain({"one": Data([])}) == {"one": {"models": []}}
    assert plain_json(Model(raw=b"a")) == {"raw": "a"}
    assert plain(b"a") == b"a"


@pytest.mark.parametrize(
    ("places", "path"),
    [((), ""), (("a",), "a"), (("a", 2, "b"), "a[2].b"), ((1, 2), "[1][2]"), (("a", "k", "[key]"), "a.k")],
)
def test_a_path_is_written_as_in_python(places: tuple[str | int, ...], path: str) -> None:
    assert path_of(places) == path


@pytest.mark.parametrize("kind", [Model, Data, Named, dict[str, bytes], int | None])
def test_every_type_that_pydantic_knows_is_checked(kind: type) -> None:
    value: object = {"models": []} if kind is Data else 5 if kind == int | None else {"raw": b"a"}
    assert checker_of(kind)(value) == TypeAdapter(kind).validate_python(value)
    assert checker_of(kind) is checker_of(kind)


def test_another_type_is_a_mistake_of_the_program() -> None:
    for make in (checker_of, json_checker_of):
        with pytest.raises(InvalidArgument, match=r"Odd.*pydantic can check"):
            make(type("Odd", (), {}))


def test_a_problem_is_a_line() -> None:
    assert problem_of(ValueError("one\ntwo")) == "ValueError: one"
    assert problem_of(EOFError()) == "EOFError"
    with pytest.raises(ValidationError) as raised:
        checker_of(Data)({"models": [{}]})
    assert problem_of(raised.value) == "models[0].raw: Field required"
    with pytest.raises(ValidationError) as raised:
        checker_of(int)("x")
    assert problem_of(raised.value).startswith("Input should be a valid integer")
