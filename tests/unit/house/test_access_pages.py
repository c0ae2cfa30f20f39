"""The pages and resources of `deploy/access` are what `kafka-pubsub access` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.access.rendering import render_commands, render_user
from kafka_pubsub.access.rights import EXTRAS, ROLES, Access, rules_of
from kafka_pubsub.cli import access as command
from kafka_pubsub.errors import InvalidArgument

FOLDER = Path(__file__).parents[3] / "deploy" / "access"
PROGRAMS = {
    "publisher": Access(["orders"], extras=["delays"]),
    "subscriber": Access(["orders"], "billing", "orders-dead", ["dead-letters", "replay"]),
    "admin": Access(["orders"], "billing", "orders-dead", ["dead-letters"]),
    "router": Access(["orders"]),
    "sequencer": Access(["stock"]),
    "spark": Access(["orders"]),
}


@pytest.mark.parametrize("role", ROLES)
def test_the_files_are_those_of_the_rights(role: str) -> None:
    rules = rules_of(role, PROGRAMS[role])
    assert (FOLDER / "kafka-acls" / f"{role}.sh").read_text("utf-8") == render_commands(rules, f"User:{role}")
    assert (FOLDER / "strimzi" / f"{role}.yaml").read_text("utf-8") == render_user(rules, role)


def test_each_role_has_files() -> None:
    assert set(PROGRAMS) == set(ROLES)
    assert {each.stem for each in (FOLDER / "strimzi").iterdir()} == set(ROLES)


def test_the_command_takes_the_roles_and_extras_that_there_are() -> None:
    assert (command.ROLES, command.EXTRAS) == (ROLES, EXTRAS)


def test_a_missing_name_and_an_unknown_role_are_named() -> None:
    with pytest.raises(InvalidArgument, match="subscription: give its name"):
        rules_of("subscriber", Access(["orders"]))
    with pytest.raises(InvalidArgument, match="topic: give at least one name"):
        rules_of("router", Access([]))
    with pytest.raises(InvalidArgument, match="there is no 'boss'; take one of publisher"):
        rules_of("boss", Access(["orders"]))
    with pytest.raises(InvalidArgument, match="there is no 'more'; take some of delays"):
        rules_of("router", Access(["orders"], extras=["more"]))
