"""Exit codes, errors, shared options and help: what holds for every command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner

from kafka_pubsub.cli import failures
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import COMMANDS, cli
from kafka_pubsub.cli.signals import Stopped
from kafka_pubsub.errors import BrokerUnavailable, NotFound
from tests.unit.cli.conftest import CommandLine

NAMES = [name for section in COMMANDS.values() for name in section]


def commands() -> list[list[str]]:
    """Every command and subcommand, by the words that name it."""
    found = []
    for name in NAMES:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found.append([name])
        if isinstance(command, click.Group):
            found += [[name, sub] for sub in command.list_commands(click.Context(command))]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example_and_takes_the_shared_options(words: list[str]) -> None:
    result = CliRunner().invoke(cli, [*words, "--json", "--bootstrap", "x:1", "--config", "a=b", "--help"])
    assert result.exit_code == 0, result.output
    assert "Examples:" in result.output
    assert "kafka-pubsub" in result.output.split("Examples:")[1]


def test_the_root_lists_every_command_under_its_heading() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for heading, section in COMMANDS.items():
        listed = output.split(f"{heading}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in listed.splitlines() if re.match(r"  \S", line)] == list(section)


@pytest.mark.parametrize("words", [[], ["topic"], ["subscription"]], ids=" ".join)
def test_a_group_alone_shows_its_help_and_has_done_nothing(words: list[str]) -> None:
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == CliRunner().invoke(cli, [*words, "--help"]).stdout


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from kafka_pubsub.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'confluent_kafka', 'pydantic', 'rich', 'pyspark', 'kafka_pubsub.app', 'kafka_pubsub.local'}\n"
        "print('LOADED', *sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "LOADED"


def test_version_in_both_forms() -> None:
    human = CliRunner().invoke(cli, ["--version"])
    assert re.fullmatch(r"kafka-pubsub \d+\.\d+\.\d+\S*\n", human.stdout)
    assert json.loads(CliRunner().invoke(cli, ["--json", "--version"]).stdout)["version"] in human.stdout


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


def _refuse(bootstrap: str | None, config: Mapping[str, str]) -> NoReturn:
    raise BrokerUnavailable(f"nobody answers at {bootstrap}\nreally")


def test_an_error_is_one_line_with_its_code(run: CommandLine) -> None:
    session = Session(open_pubsub=_refuse, find_running=lambda: "here:1")
    human = CliRunner().invoke(cli, ["topic", "list"], obj=session)
    assert (human.exit_code, human.stdout, human.stderr) == (
        failures.FAILED,
        "",
        "error: nobody answers at here:1 really\n",
    )
    machine = CliRunner().invoke(cli, ["topic", "list", "--json"], obj=session)
    assert json.loads(machine.stderr) == {
        "error": {"code": 14, "type": "BrokerUnavailable", "message": "nobody answers at here:1 really"}
    }


def test_without_any_address_the_error_says_what_to_do(run: CommandLine) -> None:
    run.address = None
    error = run.error("topic", "list")
    assert (error["exit_code"], error["code"], error["type"]) == (1, 9, "FailedPrecondition")
    assert "kafka-pubsub up" in str(error["message"])
    assert "--bootstrap" in str(error["message"])


def test_the_environment_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PUBSUB_BOOTSTRAP", "env:1")
    assert Session(find_running=lambda: "running:1").address() == "env:1"
    assert Session(find_running=lambda: None, bootstrap="option:1").address() == "option:1"
    assert (
        Session(find_running=lambda: None, config={"bootstrap.servers": "config:1"}).address() == "config:1"
    )
    monkeypatch.delenv("KAFKA_PUBSUB_BOOTSTRAP")
    assert Session(find_running=lambda: "running:1").address() == "running:1"
    assert Session(find_running=lambda: None).address() is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 1),
        (click.UsageError("x"), 2),
        (click.ClickException("x"), 1),
        (FileNotFoundError(2, "No such file", "x"), 1),
        (KeyError("x"), 1),
        (click.exceptions.Abort(), 130),
        (KeyboardInterrupt(), 130),
        (Stopped(2), 130),
        (Stopped(15), 143),
        (SystemExit(3), 3),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert failures.report(error, as_json=False) == code


def test_a_defect_of_ours_is_one_line_and_a_traceback_only_when_debugging(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failures.report(KeyError("x"), as_json=False)
    quiet = capfd.readouterr().err
    assert quiet.count("\n") == 1
    assert "internal error: KeyError: 'x'" in quiet
    monkeypatch.setenv("KAFKA_PUBSUB_DEBUG", "1")
    failures.report(KeyError("x"), as_json=False)
    assert "internal error" in capfd.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_command(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert "_KAFKA_PUBSUB_COMPLETE" in result.stdout
    assert "kafka-pubsub" in result.stdout
