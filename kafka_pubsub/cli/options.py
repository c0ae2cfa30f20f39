"""The parts that `topic` and `subscription` share: arguments and options, asking a person, and how a resource is shown.

Rule: an option that both have is defined here once; only its help differs, where it means something else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import click

from kafka_pubsub.cli import known_names
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.cli.types import DURATION, PAIR, duration_text, pairs
from kafka_pubsub.errors import NotFound

__all__ = [
    "EXIST_OK",
    "NAME",
    "SUBSCRIPTION",
    "SUBSCRIPTION_NAME",
    "SUBSCRIPTION_NAMES",
    "TOPIC",
    "TOPIC_NAME",
    "TOPIC_NAMES",
    "YES",
    "Setting",
    "asks",
    "at_once",
    "check_changes",
    "confirm",
    "duration_option",
    "for_a_person",
    "given_settings",
    "in_words",
    "ordering",
    "settings_of",
    "still_there",
]

T = TypeVar("T")
R = TypeVar("R")
# click's own type for what it decorates.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: A new name, and names that exist.
NAME = click.argument("name")
TOPIC_NAMES = click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=known_names.topics
)
SUBSCRIPTION_NAMES = click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=known_names.subscriptions
)
TOPIC_NAME = click.argument("name", shell_complete=known_names.topics)
SUBSCRIPTION_NAME = click.argument("name", shell_complete=known_names.subscriptions)
TOPIC = click.argument("topic", shell_complete=known_names.topics)
SUBSCRIPTION = click.argument("subscription", shell_complete=known_names.subscriptions)
YES = click.option("--yes", "-y", is_flag=True, help="Don't ask. Needed without a terminal and with --json.")
EXIST_OK = click.option("--exist-ok", is_flag=True, help="Succeed if it exists with these settings.")

#: Resources that are asked about at the same time.
AT_ONCE = 8

#: Fields that are seconds.
DURATIONS = frozenset({"retention", "ack_deadline", "max_extension", "min_backoff", "max_backoff", "ageing"})


class Setting(NamedTuple):
    """An option for a setting of a topic or of a subscription: its help, its default in words, and click's arguments.

    A command gets it under the setting's name, and as None if it isn't given.
    """

    names: tuple[str, ...]
    help: str
    default: str | None = None
    more: Mapping[str, Any] = {}


def ordering(help: str, default: str | None = None) -> Setting:
    """Returns the setting `message_ordering`."""
    return Setting(("--ordering/--no-ordering", "message_ordering"), help, default)


_LABELS = Setting(
    ("--label", "labels"), "A label of yours. Can be repeated.", None, {"type": PAIR, "multiple": True}
)
_OTHER_LABELS = _LABELS._replace(help="Replaces all labels. Can be repeated.")


def settings_of(*settings: Setting, new: bool) -> Decorator:
    """Adds the options of the settings and of the labels; the help says the defaults for a new resource only."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed([*settings, _LABELS if new else _OTHER_LABELS]):
            default = f"  [default: {each.default}]" if new and each.default else ""
            command = click.option(*each.names, **{"default": None, **each.more}, help=each.help + default)(
                command
            )
        return command

    return decorate


def duration_option(name: str, help: str) -> Decorator:
    """Returns an option that takes seconds, or a number with its unit."""
    return click.option(name, type=DURATION, help=help)


def given_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that were given, by the names that `PubSub` has for them."""
    given = {name: value for name, value in arguments.items() if value is not None and value != ()}
    if "labels" in given:
        given["labels"] = pairs(given["labels"], "--label")
    return given


def check_changes(*given: object) -> None:
    """Refuses an update that changes nothing."""
    if not any(given):
        raise click.UsageError("nothing to change: give at least one setting")


def asks(session: Session, what: str, *, yes: bool, why_ask: str = "can't be undone") -> bool:
    """Returns whether a person has to be asked; `UsageError` where none can be: without a terminal, and under `--json`.

    Call it before anything is done. `what` begins the sentence, "deleting topic orders", and `why_ask` goes on with it.
    """
    if yes:
        return False
    if session.as_json or not _at_a_terminal():
        why = "--json never asks" if session.as_json else "there is no terminal to ask at"
        raise click.UsageError(f"{what} {why_ask}, and {why}: give --yes")
    return True


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def confirm(question: str) -> None:
    """Asks a question; ends the command unless the answer is yes."""
    if not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.Abort


def for_a_person(session: Session, shown: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Returns the fields with durations in the form that options take; JSON keeps its seconds."""
    if session.as_json:
        return shown
    return {name: _as_typed(name, value) for name, value in shown.items()}


def _as_typed(name: str, value: JsonValue) -> JsonValue:
    if name in DURATIONS and isinstance(value, (int, float)):
        return duration_text(value)
    return value


def at_once(resources: Iterable[T], show: Callable[[T], R]) -> list[R]:
    """Does the same as `still_there`, `AT_ONCE` resources at a time: each takes several requests."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            return [
                one for some in pool.map(lambda each: still_there([each], show), resources) for one in some
            ]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def in_words(names: Sequence[str]) -> str:
    """Returns names as a sentence has them: "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def still_there(resources: Iterable[T], show: Callable[[T], R]) -> list[R]:
    """Shows each resource, and leaves out those that were deleted since they were listed."""
    shown: list[R] = []
    for each in resources:
        with contextlib.suppress(NotFound):
            shown.append(show(each))
    return shown
