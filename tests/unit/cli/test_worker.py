"""`worker`: errors of its file end it with 2 before anything starts; its `--config` is a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_pubsub.cli.main import cli


def test_a_wrong_file_is_a_usage_error_that_says_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text("[apps]\nshop = 3\n")
    result = CliRunner().invoke(cli, ["worker", "--config", str(file)])
    assert result.exit_code == 2
    assert 'worker.toml: [apps] shop: 3 is no app; write shop = "MODULE:NAME"' in " ".join(
        result.output.split()
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [([], "Missing option '--config'"), (["--config", "none.toml"], "none.toml: can't be read")],
)
def test_there_is_a_file(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(cli, ["worker", *arguments])
    assert (result.exit_code, error in " ".join(result.output.split())) == (2, True), result.output


def test_a_librdkafka_setting_goes_before_the_command() -> None:
    result = CliRunner().invoke(cli, ["--config", "client.id=a", "worker", "--config", "none.toml"])
    assert "none.toml: can't be read" in " ".join(result.output.split())
