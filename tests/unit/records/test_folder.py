"""Schemas in a folder: their numbers, and files that aren't as they should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument, NotFound, PubSubError, SchemaError
from kafka_pubsub.records.folder import RELEASED, Folder
from kafka_pubsub.records.frames import SchemaId
from kafka_pubsub.records.parsing import parse_schema


def avro(*fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": each, "type": "string"} for each in fields]}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "v1.avsc").write_text(avro("id"))
    (tmp_path / "orders" / "v2.avsc").write_text(avro("id", "note"))
    (tmp_path / "orders" / "README.md").write_text("who writes it")
    return tmp_path


def test_a_folder_has_subjects_and_numbers(path: Path) -> None:
    (path / "empty").mkdir()
    folder = Folder(path)
    assert folder.subjects() == ["orders"]
    assert folder.numbers("orders") == [1, 2]
    assert folder.read("orders", 1) == ("avro", avro("id"))
    assert folder.latest("orders").id == SchemaId(2, "orders")
    assert folder.find(SchemaId(1, "orders")).text == avro("id")
    assert folder.subject_of("orders") == "orders"


def test_a_schema_is_looked_up_whatever_its_white_space(path: Path) -> None:
    codec = parse_schema("avro", json.dumps(json.loads(avro("id")), indent=4))
    assert Folder(path).look_up("orders", codec).id == SchemaId(1, "orders")
    assert Folder(path).register("orders", codec).id == SchemaId(1, "orders")
    with pytest.raises(NotFound, match=r"none of v1 to v2 of 'orders'.*write it to v3"):
        Folder(path).register("orders", parse_schema("avro", avro("other")))


def test_ten_comes_after_nine(path: Path) -> None:
    for number in range(3, 12):
        (path / "orders" / f"v{number}.avsc").write_text(avro("id", f"f{number}"))
    assert Folder(path).latest("orders").id.number == 11


def rename(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: (path / "orders" / old).rename(path / "orders" / new)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (
            rename("v1.avsc", "v3.avsc"),
            FailedPrecondition,
            "must be 1, 2, 3 and so on, each once, and are 2, 3",
        ),
        (
            lambda path: (path / "orders/v2.json").write_text("{}"),
            FailedPrecondition,
            "each once, and are 1, 2, 2",
        ),
        (rename("v2.avsc", "v2.json"), FailedPrecondition, "have several formats"),
        (rename("v2.avsc", "2.avsc"), None, ""),
        (lambda path: (path / "orders/v2.avsc").write_text("{"), SchemaError, "not an Avro schema"),
        (lambda path: (path / "orders" / RELEASED).write_text("[1]"), FailedPrecondition, "isn't an object"),
    ],
)
def test_files_that_are_not_as_they_should_be_are_named(
    path: Path, change: Callable[[Path], object], kind: type[PubSubError] | None, said: str
) -> None:
    change(path)
    if kind is None:
        assert Folder(path).numbers("orders") == [1]
        return
    with pytest.raises(kind, match=said):
        Folder(path).latest("orders")


def test_what_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(NotFound, match=r"stock has no file v1\.avsc"):
        Folder(path).latest("stock")
    with pytest.raises(FailedPrecondition, match=r"orders/7 isn't in the folder .*, whose last is v2: ship"):
        Folder(path).find(SchemaId(7, "orders"))
    with pytest.raises(FailedPrecondition, match=r"stock/1 isn't in the folder .* no sub-folder stock: ship"):
        Folder(path).find(SchemaId(1, "stock"))
    with pytest.raises(FailedPrecondition, match="there is no folder"):
        Folder(path / "nowhere").subjects()
    with pytest.raises(FailedPrecondition, match="is a number in a registry"):
        Folder(path).find(SchemaId(7))
    with pytest.raises(InvalidArgument, match="can't be a subject"):
        Folder(path).find(SchemaId(1, "../orders"))


def test_a_released_file_that_was_edited_is_refused(path: Path) -> None:
    folder = Folder(path)
    assert folder.release("orders") == ["v1.avsc", "v2.avsc"]
    assert folder.release("orders") == []
    (path / "orders" / "v3.avsc").write_text(avro("id", "more"))
    assert Folder(path).latest("orders").id.number == 3  # not yet released
    assert folder.release("orders") == ["v3.avsc"]
    (path / "orders" / "v1.avsc").write_text(avro("ID"))
    with pytest.raises(
        SchemaError, match=r"v1.avsc was edited after it was released.*take the edit back.*v4.avsc"
    ):
        Folder(path).find(SchemaId(1, "orders"))
    with pytest.raises(SchemaError, match="was edited"):
        folder.release("orders")
    assert Folder(path).find(SchemaId(2, "orders")).format == "avro"


def test_drafts_are_not_released(path: Path) -> None:
    folder = Folder(path)
    assert folder.release("orders", 1) == ["v1.avsc"]
    (path / "orders" / "v2.avsc").write_text(avro("other"))
    assert folder.release("orders", 1) == []
    assert folder.release("orders") == ["v2.avsc"]


def test_a_file_that_can_not_be_read_is_named(path: Path) -> None:
    (path / "orders" / "v1.avsc").write_bytes(b"\xff")
    with pytest.raises(FailedPrecondition, match=r"v1\.avsc can't be read"):
        Folder(path).find(SchemaId(1, "orders"))
