"""Options that are settings: their names, their help, and what is given of them."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from kafka_pubsub.cli.options import Setting, check_changes, given_settings, ordering, settings_of
from kafka_pubsub.cli.subscriptions import SETTINGS, subscription
from kafka_pubsub.cli.topics import topic
from kafka_pubsub.options import SubscriptionSettings, TopicChanges, TopicSettings

SIZE = Setting(("--size",), "How large.", "8", {"type": int})

#: Options of the command line that are parts of a setting, and settings that have none.
POLICIES = {"min_backoff", "max_backoff", "dead_letter_topic", "max_attempts", "on_exhausted"}
IN_PARTS = {"retry", "dead_letter"}


def taken(*words: str, new: bool = True) -> dict[str, object]:
    """Returns the settings that a command gets."""
    got: dict[str, object] = {}

    @click.command()
    @settings_of(ordering("One after the other.", "no"), SIZE, new=new)
    def command(**given: object) -> None:
        got.update(given_settings(given))

    answer = CliRunner().invoke(command, words)
    assert answer.exit_code == 0, answer.output
    return got


def test_only_what_is_given_is_a_setting() -> None:
    assert taken() == {}
    assert taken("--size", "3", "--no-ordering") == {"size": 3, "message_ordering": False}
    assert taken("--label", "a=1", "--label", "b=") == {"labels": {"a": "1", "b": ""}}


@pytest.mark.parametrize(("new", "shown"), [(True, True), (False, False)])
def test_the_default_is_said_of_a_new_resource_only(new: bool, shown: bool) -> None:
    command = click.Command("make")
    settings_of(SIZE, new=new)(command)
    texts = [each.help for each in command.params if isinstance(each, click.Option)]
    assert ("How large.  [default: 8]" in texts) is shown
    assert ("A label of yours. Can be repeated." in texts) is shown


def test_a_change_of_nothing_is_refused() -> None:
    check_changes({}, True)
    with pytest.raises(click.UsageError, match="nothing to change"):
        check_changes({}, False)


@pytest.mark.parametrize(
    ("group", "name", "settings", "parts"),
    [
        (topic, "create", TopicSettings, set()),
        (topic, "update", TopicChanges, set()),
        (subscription, "create", SubscriptionSettings, POLICIES),
        (subscription, "update", SubscriptionSettings, POLICIES),
    ],
)
def test_each_setting_has_an_option(group: click.Group, name: str, settings: type, parts: set[str]) -> None:
    options = {each.name for each in group.commands[name].params}
    assert options >= settings.__optional_keys__ - IN_PARTS | parts  # type: ignore[attr-defined]
    assert len(SETTINGS) == len(SubscriptionSettings.__optional_keys__ - IN_PARTS - {"labels"} | POLICIES)
