"""The pages of `deploy/multicast` agree with its rules."""

from __future__ import annotations

from tests.access_rules import RULES, acl_commands, strimzi_users

TOPICS = ("orders", "stock")
FOLDER = RULES.parent


def test_the_commands_of_the_page_are_those_of_the_rules() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for role, topics in (("publisher", TOPICS), ("sequencer", TOPICS), ("subscriber", TOPICS[:1])):
        assert acl_commands(role, topics, "billing") in page


def test_the_resources_for_strimzi_are_those_of_the_rules() -> None:
    text = (FOLDER / "strimzi" / "users.yaml").read_text(encoding="utf-8")
    assert text == strimzi_users(TOPICS, "billing")
