"""`schema`: a new version is compared with the earlier ones, in a folder and in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.registry_server import RegistryServer
from tests.unit.cli.conftest import CommandLine

ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NOTE = {"name": "note", "type": "string"}
GOOD: dict[str, Any] = {**ONE, "fields": [*ONE["fields"], {**NOTE, "default": ""}]}
BAD: dict[str, Any] = {**ONE, "fields": [*ONE["fields"], NOTE]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "orders"
    found.mkdir()
    write(found / "v1.avsc", ONE)
    return found


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def write(file: Path, schema: Any) -> str:
    file.write_text(json.dumps(schema))
    return str(file)


def test_a_version_is_compared_with_those_before_it(run: CommandLine, folder: Path) -> None:
    file = write(folder / "v2.avsc", GOOD)
    result = run("schema", "check", file)
    assert (result.exit_code, result.stdout) == (0, "v2.avsc is compatible with v1.\n")
    assert "compared with nothing" in run("schema", "check", str(folder / "v1.avsc")).stdout
    write(folder / "v2.avsc", BAD)
    result = run("schema", "check", file)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split(maxsplit=1)[0] == "v1"
    assert "note" in result.stdout
    assert "it has no default" in result.stdout


def test_a_file_elsewhere_is_compared_with_a_folder(run: CommandLine, folder: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "order.avsc", BAD)
    result = run("schema", "check", file, "--against", str(folder), "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["compatible"], answer["compared_with"]) == (False, [1])
    assert [(each["number"], each["direction"], each["field"]) for each in answer["breaks"]] == [
        (1, "backward", "note")
    ]
    assert run("schema", "check", file, "--subject", "orders", "--schemas", str(tmp_path)).exit_code == 1
    assert run("schema", "check", file, "--against", str(folder), "--compatibility", "forward").exit_code == 0


def test_a_released_version_that_was_edited_is_refused(run: CommandLine, folder: Path) -> None:
    first = str(folder / "v1.avsc")
    released = run("schema", "check", first, "--release")
    assert (released.exit_code, released.stderr) == (0, "Released: v1.avsc.\n")
    assert "nothing new" in run("schema", "check", first, "--release").stderr
    write(folder / "v1.avsc", GOOD)
    for file in (first, write(folder / "v2.avsc", GOOD)):
        assert "was edited after it was released" in str(run.error("schema", "check", file)["message"])


def test_what_breaks_isn_t_released(run: CommandLine, folder: Path) -> None:
    assert run("schema", "check", write(folder / "v2.avsc", BAD), "--release").exit_code == 1
    assert not (folder / "released.json").exists()


def test_a_registry_is_asked_and_what_it_refuses_is_named(
    run: CommandLine, server: RegistryServer, tmp_path: Path
) -> None:
    server.add("orders-value", "AVRO", json.dumps(ONE))
    where = ("--subject", "orders-value", "--schemas", server.address)
    good, bad = write(tmp_path / "good.avsc", GOOD), write(tmp_path / "bad.avsc", BAD)
    assert run("schema", "check", good, *where).stdout == "good.avsc is compatible with v1.\n"
    server.incompatible["orders-value"] = ["told by the registry"]
    result = run("schema", "check", bad, *where)
    assert result.exit_code == 1
    assert "bodies don't have it" in result.stdout
    assert "the registry refuses it (compatibility BACKWARD)" in run("schema", "check", good, *where).stdout
    nothing = run("schema", "check", good, "--subject", "none-value", "--schemas", server.address)
    assert (nothing.exit_code, nothing.stdout) == (0, "good.avsc was compared with nothing.\n")
    assert "has no version yet" in nothing.stderr


def test_a_registry_that_compares_nothing_is_told(
    run: CommandLine, server: RegistryServer, tmp_path: Path
) -> None:
    server.add("orders-value", "AVRO", json.dumps(ONE))
    server.compatibility = "NONE"
    file = write(tmp_path / "bad.avsc", BAD)
    answer = run.json("schema", "check", file, "--subject", "orders-value", "--schemas", server.address)
    assert isinstance(answer, dict)
    assert answer["compatible"]
    assert "compares nothing" in answer["note"]


def test_subjects_and_their_schemas_are_shown(run: CommandLine, server: RegistryServer, folder: Path) -> None:
    server.add("orders-value", "AVRO", json.dumps(ONE))
    server.add("orders-value", "AVRO", json.dumps(GOOD))
    assert run.json("schema", "list", "--schemas", server.address) == [
        {"subject": "orders-value", "versions": 2}
    ]
    assert run.json("schema", "list", "--schemas", str(folder.parent)) == [
        {"subject": "orders", "versions": 1}
    ]
    assert json.loads(run("schema", "show", "orders-value", "--schemas", server.address).stdout) == GOOD
    assert json.loads(run("schema", "show", "orders-value", "1", "--schemas", server.address).stdout) == ONE
    assert json.loads(run("schema", "show", "orders", "--schemas", str(folder.parent)).stdout) == ONE


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("check", "order.txt", "--against", "orders"), 1, "its format isn't known"),
        (("check", "order.avsc"), 2, "isn't one of the versions"),
        (("check", "order.avsc", "--subject", "orders"), 2, "name the registry or the folder"),
        (("check", "order.avsc", "--subject", "s", "--against", "orders"), 2, "give --against or --subject"),
        (
            ("check", "order.avsc", "--against", "orders", "--release"),
            2,
            "--release is for a version in a folder",
        ),
        (("check", "order.json", "--against", "orders"), 1, "it is json, and 'orders' has avro"),
        (("check", "wrong.avsc", "--against", "orders"), 1, "schema"),
        (("show", "../orders", "--schemas", "."), 1, "can't be a subject"),
        (("list", "--schemas", "nowhere"), 1, "there is no folder nowhere"),
        (("list", "--schemas", "http://127.0.0.1:9"), 1, "http://127.0.0.1:9"),
    ],
)
def test_what_is_wrong_is_said(
    run: CommandLine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    write(Path("order.avsc"), GOOD)
    Path("order.txt").write_text("text")
    Path("wrong.avsc").write_text('{"type": "nonsense"}')
    write(Path("order.json"), {"type": "object"})
    error = run.error("schema", *arguments)
    assert (error["exit_code"], said in str(error["message"])) == (code, True), error
