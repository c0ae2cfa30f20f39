"""`topology` over the in-memory Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import CommandLine


@pytest.fixture
def declared(tmp_path: Path) -> str:
    path = tmp_path / "delays.json"
    path.write_text('{"tiers": 2, "partitions": 1}')
    return str(path)


def test_plan_apply_and_check(run: CommandLine, declared: str) -> None:
    before = run("topology", "plan", "--file", declared, "--check", "--json")
    assert before.exit_code == 1
    assert [each["change"] for each in json.loads(before.stdout)] == ["create"] * 4
    assert run("topology", "plan", "--file", declared).exit_code == 0
    applied = run("topology", "apply", "--file", declared)
    assert applied.exit_code == 0
    assert "4 changes made" in applied.stdout
    after = run("topology", "plan", "--file", declared, "--check")
    assert (after.exit_code, after.stderr.strip()) == (0, "Nothing differs.")


def test_what_is_refused_fails_with_what_to_do(run: CommandLine, declared: str) -> None:
    Path(declared).write_text('{"tiers": 2, "partitions": 5}')
    run("topology", "apply", "--file", declared)
    failed = run("topology", "apply")
    assert failed.exit_code == 1
    assert "12 isn't a multiple of the present 5" in failed.stderr


def test_render_prints_for_each_tool(run: CommandLine, declared: str) -> None:
    module = json.loads(run("topology", "render", "terraform", "--file", declared).stdout)
    assert module["locals"]["topics"][0] == "_kafka_pubsub.delay.in"
    assert "kind: KafkaTopic" in run("topology", "render", "strimzi").stdout
    assert json.loads(run("topology", "render", "json").stdout)["tiers"] == 28
    assert run("topology", "render", "pulumi").exit_code == 2


def test_a_wrong_file_is_a_clear_error(run: CommandLine, tmp_path: Path) -> None:
    failed = run("topology", "plan", "--file", str(tmp_path / "nowhere.json"))
    assert failed.exit_code == 1
    assert "can't be read" in failed.stderr
