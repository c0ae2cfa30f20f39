"""The pages and resources of `deploy/access` are what `kafka-pubsub access` prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_pubsub.access.rendering import render_commands, render_user
from kafka_pubsub.access.rights import EXTRAS, ROLES, Access, Rule, rules_of
from kafka_pubsub.cli import access as command
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import InvalidArgument

FOLDER = Path(__file__).parents[3] / "deploy" / "access"
PROGRAMS = {
    "publisher": Access(["orders"], extras=["delays"]),
    "subscriber": Access(["orders"], "billing", "orders-dead", ["dead-letters", "replay"]),
    "admin": Access(["orders"], "billing", "orders-dead", ["dead-letters"]),
    "router": Access(["orders"]),
    "sequencer": Access(["stock"]),
    "monitor": Access(["orders"], "billing", "orders-dead", ["delays", "dead-letters"]),
    "spark": Access(["orders"]),
}


@pytest.mark.parametrize("role", ROLES)
def test_the_files_are_those_of_the_rights(role: str) -> None:
    rules = rules_of(role, PROGRAMS[role])
    assert (FOLDER / "kafka-acls" / f"{role}.sh").read_text("utf-8") == render_commands(rules, f"User:{role}")
    assert (FOLDER / "strimzi" / f"{role}.yaml").read_text("utf-8") == render_user(rules, f"User:{role}")


def test_each_role_has_files() -> None:
    assert set(PROGRAMS) == set(ROLES)
    assert {each.stem for each in (FOLDER / "strimzi").iterdir()} == {*ROLES, "kustomization"}


def test_the_command_takes_the_roles_and_extras_that_there_are() -> None:
    assert (command.ROLES, command.EXTRAS) == (ROLES, EXTRAS)


def test_the_commands_are_quoted_and_log_in() -> None:
    rules = [Rule("group", "bill it", False, ("Read",)), Rule("cluster", "kafka-cluster", False, ("Create",))]
    text = render_commands(rules, "User:CN=shop,O=Example Corp", "k:1", command_config="my login.properties")
    for line, last in zip(text.splitlines(), (["--group", "bill it"], ["--cluster"]), strict=True):
        words = shlex.split(line)
        assert words[:5] == [
            "kafka-acls.sh",
            "--bootstrap-server",
            "k:1",
            "--command-config",
            "my login.properties",
        ]
        assert words[words.index("--allow-principal") + 1] == "User:CN=shop,O=Example Corp"
        assert words[-len(last) :] == last


def test_the_command_takes_address_and_login_of_the_options(tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("security.protocol=SSL\n")
    options = ["-b", "k:1", "--config-file", str(file), "access", "spark", "--topic", "orders"]
    done = CliRunner().invoke(cli, options)
    assert done.stdout.startswith(f"kafka-acls.sh --bootstrap-server k:1 --command-config {file} --add ")


@pytest.mark.parametrize("principal", ["User:shop", "User:CN=shop", "shop"])
def test_a_user_of_strimzi_has_the_name_of_the_principal(principal: str) -> None:
    assert "  name: shop\n" in render_user([], principal)


@pytest.mark.parametrize(
    "principal", ["User:CN=shop,O=Example Corp", "User:Shop", "User:a_b", "User:", "User:" + "a" * 254]
)
def test_a_principal_that_no_user_of_strimzi_can_be_is_refused(principal: str) -> None:
    with pytest.raises(InvalidArgument, match="principal: a KafkaUser is"):
        render_user([], principal)


@pytest.mark.parametrize(
    ("name", "text"), [("1.5", '"1.5"'), ("yes", '"yes"'), ("a: b", '"a: b"'), ("yes.sub.", "yes.sub.")]
)
def test_names_are_texts_in_yaml(name: str, text: str) -> None:
    user = render_user([Rule("group", name, False, ("Read",))], "User:shop")
    assert f"          name: {text}\n" in user


def test_a_missing_name_and_an_unknown_role_are_named() -> None:
    with pytest.raises(InvalidArgument, match="subscription: give its name"):
        rules_of("subscriber", Access(["orders"]))
    with pytest.raises(InvalidArgument, match="topic: give at least one name"):
        rules_of("router", Access([]))
    with pytest.raises(InvalidArgument, match="there is no 'boss'; take one of publisher"):
        rules_of("boss", Access(["orders"]))
    with pytest.raises(InvalidArgument, match="there is no 'more'; take some of delays"):
        rules_of("router", Access(["orders"], extras=["more"]))
