"""`oauth_cb` as a name: how commands, variables and config files give the function of login tokens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.run import environment_of
from kafka_pubsub.config import load_settings
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka.config_file import join_config
from kafka_pubsub.log.kafka.configuration import Configuration

NAME = "oauth_cb=kafka_logins:Logins.ours"
MODULE = """
import time
class Logins:
    @staticmethod
    def ours(config):
        return f"token for {config}", time.time() + 60
number = 3
async def later(config): ...
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka_logins.py").write_text(MODULE)
    (tmp_path / "kafka_broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])


def _token() -> str:
    """The token of a program that takes all from the environment."""
    config = join_config(load_settings(), None, {}, None)
    tokens = Configuration("k:1", config | {"sasl.mechanism": "OAUTHBEARER"}).tokens
    assert tokens is not None
    return tokens("me")[0]


def test_a_variable_names_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PUBSUB_CONFIG", json.dumps(dict([NAME.split("=")])))
    assert _token() == "token for me"


@pytest.mark.parametrize("by_file", [False, True])
def test_the_processes_of_run_get_the_name(
    by_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "login.properties"
    file.write_text(f"{NAME}\n")
    session = Session(config_file=str(file)) if by_file else Session(config=dict([NAME.split("=")]))
    for name, value in environment_of(session).items():
        monkeypatch.setenv(name, value)
    assert _token() == "token for me"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("kafka_logins", "name as MODULE:FUNCTION"),
        (":login", "name as MODULE:FUNCTION"),
        ("kafka_nowhere:login", "module 'kafka_nowhere' doesn't import from"),
        ("kafka_broken:login", "ZeroDivisionError"),
        ("kafka_logins:other", "module 'kafka_logins' has no 'other'"),
        ("kafka_logins:number", "must be a function, not int"),
        ("kafka_logins:later", "must be a function, not a coroutine function"),
    ],
)
def test_what_is_no_function_is_refused(target: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=r"config\['oauth_cb'\]") as caught:
        Configuration("k:1", {"oauth_cb": target})
    assert said in caught.value.message
