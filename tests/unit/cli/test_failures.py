"""Errors of commands: a single line with a code, and the exit code."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from kafka_pubsub.cli import failures
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import NotFound
from kafka_pubsub.services.signals import Stopped
from tests.unit.cli.conftest import CommandLine
from tests.unit.cli.test_command import _refuse


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
