"""The processes of `run` and `worker` have the address and the settings of other commands with the same options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.cli.run import environment_of
from kafka_pubsub.config import load_settings
from kafka_pubsub.local.address import choose_address
from kafka_pubsub.log.kafka.config_file import join_config

#: Names a cluster and a login.
FILE = "bootstrap.servers=staging:1\nsasl.username=file\nsasl.password=w0rd\n"

PROD = {"sasl.username": "variable", "client.rack": "c", "debug": "all"}

Cluster = tuple[str, dict[str, object]]


def _cluster(bootstrap: str | None, config: Mapping[str, str], config_file: str | None) -> Cluster:
    """The address and the settings of a `PubSub` with these arguments."""
    settings = load_settings()
    merged = join_config(settings, bootstrap, config, config_file)
    address = choose_address(bootstrap, merged, settings)
    return address, {name: value for name, value in merged.items() if name != "bootstrap.servers"}


def _of_another_command(options: list[str]) -> Cluster:
    seen: list[Cluster] = []

    def open_pubsub(
        bootstrap: str | None, config: Mapping[str, str], file: str | None
    ) -> AbstractContextManager[PubSub]:
        seen.append(_cluster(bootstrap, config, file))
        return PubSub.in_memory(services=False)

    done = CliRunner().invoke(cli, [*options, "topic", "list"], obj=Session(open_pubsub=open_pubsub))
    assert done.exit_code == 0, done.output
    return seen[0]


def _of_a_child(options: list[str], patch: pytest.MonkeyPatch) -> Cluster:
    session = Session(find_running=lambda: None)
    CliRunner().invoke(cli, [*options, "completion", "bash"], obj=session)
    for name, value in environment_of(session).items():
        patch.setenv(name, value)
    return _cluster(None, {}, None)


@pytest.mark.parametrize(
    ("options", "address", "settings"),
    [
        (
            ["--config-file", "FILE"],
            "staging:1",
            {"sasl.username": "file", "sasl.password": "w0rd", "client.rack": "c"},
        ),
        (
            ["--config-file", "FILE", "-b", "there:2", "--config", "sasl.username=option"],
            "there:2",
            {"sasl.username": "option", "sasl.password": "w0rd", "client.rack": "c"},
        ),
        (["--config", "bootstrap.servers=there:2"], "there:2", PROD),
        ([], "prod:9", PROD),
    ],
)
def test_a_child_has_the_cluster_of_other_commands(
    options: list[str],
    address: str,
    settings: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "staging").write_text(FILE)
    (tmp_path / "prod").write_text("bootstrap.servers=prod:8\ndebug=all\n")
    monkeypatch.setenv("KAFKA_PUBSUB_BOOTSTRAP", "prod:9")
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", json.dumps({"sasl.username": "variable", "client.rack": "c"}))
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG_FILE", str(tmp_path / "prod"))
    given = [str(tmp_path / "staging") if each == "FILE" else each for each in options]
    assert _of_another_command(given) == (address, settings)
    assert _of_a_child(given, monkeypatch) == (address, settings)


def test_an_address_among_the_settings_of_the_environment_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "staging").write_text(FILE)
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", json.dumps({"bootstrap.servers": "prod:9"}))
    options = ["--config-file", str(tmp_path / "staging")]
    found = _of_another_command(options)
    assert found == ("staging:1", {"sasl.username": "file", "sasl.password": "w0rd"})
    assert _of_a_child(options, monkeypatch) == found


def test_secrets_of_a_file_stay_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "staging").write_text(FILE)
    found = environment_of(Session(config_file=str(tmp_path / "staging"), config={"client.rack": "a"}))
    assert not any("w0rd" in value for value in found.values())
