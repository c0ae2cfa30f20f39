"""docs/connecting.md: its settings are librdkafka's, its commands and lines are those of the program."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError

from kafka_pubsub import PubSub
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.config import load_settings
from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.log.kafka import errors
from kafka_pubsub.log.kafka.config_file import read_config_file
from kafka_pubsub.log.kafka.configuration import Configuration
from kafka_pubsub.log.kafka.errors import unreachable
from kafka_pubsub.log.kafka.tokens import Tokens

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "connecting.md").read_text(encoding="utf-8")
ERRORS = sorted(Path(errors.__file__).parent.glob("*.py"))
CA_FILE = "/etc/ssl/kafka-ca.pem"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_program_runs_and_librdkafka_takes_its_settings() -> None:
    names: dict[str, Any] = {}
    program = blocks("python")[0]
    exec(compile(program, "docs/connecting.md", "exec"), names)
    assert isinstance(names["ps"], PubSub)
    address = re.findall(r'PubSub\("([^"]+)"', program)[0]
    Configuration(address, {**names["config"], "ssl.ca.location": certifi.where(), "sasl.password": "x"})


def named_settings() -> list[str]:
    rows = [line for line in PAGE.splitlines() if "security.protocol=" in line or "ssl.certificate" in line]
    words = re.findall(r"`([a-z.]+)(?:=[A-Za-z_]+)?`", " ".join(rows))
    return [f"sasl.oauthbearer{word}" if word.startswith(".") else word for word in words]


@pytest.mark.parametrize("name", sorted(set(named_settings())))
def test_the_settings_of_the_table_exist(name: str) -> None:
    assert _is_known(name)
    assert not _is_known(f"{name}.x")


def _is_known(name: str) -> bool:
    try:
        Configuration("h:1", {name: "x"})
    except InvalidArgument as error:  # perhaps of the value only
        return "No such configuration property" not in error.message
    return True


def test_callbacks_are_refused_as_the_page_says() -> None:
    with pytest.raises(InvalidArgument, match="callbacks are taken by kafka_pubsub, except oauth_cb"):
        PubSub("h:1", config={"error_cb": "x"}).list_topics()


def test_the_functions_that_give_tokens_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.time() + 900
    answer = SimpleNamespace(token="abc", expires=later)
    names: dict[str, Any] = {"PubSub": PubSub, "ask_your_login_server": lambda: answer}
    signer = SimpleNamespace(generate_auth_token=lambda region: ("abc", round(later * 1000)))
    module = SimpleNamespace(MSKAuthTokenProvider=signer)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    for program in blocks("python")[1:]:
        exec(compile(program, "docs/connecting.md", "exec"), names)
    for login in (names["login"], names["msk_login"]):
        token, expires = Tokens(login)("")[:2]
        assert (token, round(expires)) == ("abc", round(later))


def test_the_file_of_the_page_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka-password").write_text("secret\n")
    (text,) = blocks("properties")
    file = tmp_path / "client.properties"
    file.write_text(text.replace("/run/secrets", str(tmp_path)))
    assert read_config_file(file) == {
        "bootstrap.servers": "kafka-1.example.com:9093,kafka-2.example.com:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "billing",
        "sasl.password": "secret",
        "ssl.ca.location": CA_FILE,
    }


def test_the_words_of_the_table_of_failed_logins_are_those_of_errors() -> None:
    """The page names what errors say; `tests/integration/test_secured.py` meets each of them."""
    for words in (
        "the broker refused the login",
        "refused this client's certificate",
        "couldn't be verified",
    ):
        assert words in PAGE
        assert any(words in path.read_text("utf-8") for path in ERRORS)


def test_the_commands_take_the_settings_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str | None, Mapping[str, str]]] = []

    def open_pubsub(
        bootstrap: str | None, config: Mapping[str, str], _: str | None
    ) -> AbstractContextManager[PubSub]:
        opened.append((bootstrap, dict(config)))
        return PubSub.in_memory()

    for line in blocks("sh")[1].splitlines():
        command, *arguments = shlex.split(line)
        if command == "export":
            monkeypatch.setenv(*arguments[0].split("=", 1))
        else:
            assert command == "kafka-pubsub"
            done = CliRunner().invoke(cli, arguments, obj=Session(open_pubsub=open_pubsub))
            assert done.exit_code == 0, done.output
    assert load_settings().config["sasl.mechanism"] == "PLAIN"
    assert opened == [
        ("kafka-1.example.com:9093,kafka-2.example.com:9093", {}),
        ("kafka-3.example.com:9093", {"ssl.ca.location": CA_FILE}),
    ]


def test_the_lines_of_an_outage_are_those_that_are_logged() -> None:
    (lines,) = blocks("text")
    refused = KafkaError(KafkaError._TRANSPORT, "Connect to ipv4#10.0.0.1:9092 failed: Connection refused")
    text = unreachable("reach a broker", "kafka-1:9092", refused).message
    assert lines.count(f"WARNING kafka_pubsub.kafka {text}") == 2
    assert f"{text}; publishing and receiving wait for it" in lines
    assert f"{text}, for 62 s now; publishing and receiving wait for it" in lines
