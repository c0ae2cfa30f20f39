"""Exit codes, errors, shared options and help: the rules for every command."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import COMMANDS, cli

NAMES = [name for section in COMMANDS.values() for name in section]


def commands() -> list[list[str]]:
    """Every command and subcommand, by the words of its name."""
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_command(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0, result.output
    assert "_KAFKA_PUBSUB_COMPLETE" in result.stdout
    assert "kafka-pubsub" in result.stdout
