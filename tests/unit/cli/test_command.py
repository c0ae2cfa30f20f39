"""The options that every command takes, before and after its name."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from click.testing import CliRunner

from kafka_pubsub.cli import failures
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import BrokerUnavailable
from tests.unit.cli.conftest import CommandLine


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "nonsense"],
        ["topic", "create"],
        ["topic", "list", "--nonsense"],
        ["topic", "create", "x", "--retention", "5w"],
        ["topic", "create", "x", "--partitions", "many"],
        ["topic", "update", "x"],
        ["subscription", "create", "x"],
        ["subscription", "update", "x"],
        ["subscription", "update", "x", "--no-backoff", "--min-backoff", "1s"],
        ["publish", "x", "data", "--file", "pyproject.toml"],
        ["publish", "x", "data", "--attribute", "novalue"],
        ["publish", "x", "data", "--key", "k", "--key-separator", ":"],
        ["publish", "x", "--file", "no-such-file"],
        ["pull", "x", "--max", "0"],
        ["completion", "powershell"],
        ["--config", "novalue", "topic", "list"],
        ["-b", "", "topic", "list"],
        ["topic", "list", "--bootstrap", " "],
        ["demo", "--nack-rate", "2"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_and_one_line_in_both_forms(
    run: CommandLine, arguments: list[str]
) -> None:
    human = run(*arguments)
    assert human.exit_code == failures.USAGE
    assert human.stdout == ""
    assert human.stderr.startswith("error: ")
    assert human.stderr.count("\n") == 1
    machine = run("--json", *arguments)
    assert machine.exit_code == failures.USAGE
    error = json.loads(machine.stderr)["error"]
    assert (error["code"], error["type"]) == (3, "UsageError")


def test_forms_that_exclude_each_other_are_refused(run: CommandLine) -> None:
    error = run.error("pull", "x", "--data-only")
    assert (error["exit_code"], error["type"]) == (failures.USAGE, "UsageError")


def test_json_is_accepted_before_and_after_the_subcommand(run: CommandLine) -> None:
    for arguments in (["--json", "topic", "list"], ["topic", "--json", "list"], ["topic", "list", "--json"]):
        result = run(*arguments)
        assert (result.exit_code, json.loads(result.stdout)) == (0, [])


def test_address_and_settings_are_accepted_everywhere_and_the_last_wins() -> None:
    session = Session(open_pubsub=_refuse, find_running=lambda: None)
    CliRunner().invoke(
        cli,
        [
            "-b",
            "a:1",
            "--config",
            "x=1",
            "topic",
            "--config",
            "x=2",
            "list",
            "-b",
            "b:2",
            "--config",
            "y=a=b",
        ],
        obj=session,
    )
    assert (session.bootstrap, session.config) == ("b:2", {"x": "2", "y": "a=b"})


def _refuse(bootstrap: str | None, *_: object) -> NoReturn:
    raise BrokerUnavailable(f"nobody answers at {bootstrap}\nreally")
