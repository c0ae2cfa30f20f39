"""Error texts for the command line: Python's words are replaced by those of the command that runs.

Rules
1. A call that an error advises (`errors.Call`) becomes the command that does the same.
2. An argument (`max_attempts`, `partitions:`, `port=`) becomes the option of the running command that has its name.
3. What no option stands for is in `_PHRASES`. A test looks for Python's words in the texts of all errors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from types import EllipsisType

import click

from kafka_pubsub.errors import Call, PubSubError

__all__ = ["COMMANDS", "advice", "in_words_of"]

#: By method of `PubSub`: the command that does the same.
COMMANDS = {
    "create_topic": "topic create",
    "adopt_topic": "topic adopt",
    "update_topic": "topic update",
    "delete_topic": "topic delete",
    "create_subscription": "subscription create",
    "update_subscription": "subscription update",
    "recover_subscription": "subscription recover",
    "delete_subscription": "subscription delete",
    "repartition_topic": "topic repartition",
}

#: Arguments whose parameter has another name in a command.
_SPELT = {
    "dead_letter.topic": "dead_letter_topic",
    "dead_letter": "dead_letter_topic",
    "start": "from",
    "message_ordering": "ordering",
    "ordering_key": "key",
    "message_id": "id",
    "ids": "id",
}

#: Python's words for which a command has no option.
_PHRASES = {
    "with create=False (KAFKA_PUBSUB_CREATE)": "with KAFKA_PUBSUB_CREATE=false",
    "durable=False: ": "--transient: ",
    "Publish what must arrive with durable=True": "Publish what must arrive without --transient",
    "use PubSub(group_protocol=...) or KAFKA_PUBSUB_GROUP_PROTOCOL": "use KAFKA_PUBSUB_GROUP_PROTOCOL",
    "use topic.configure(flow=PublishFlow(...))": "commands limit by themselves how much waits",
    "topics are made by create_topic only": "topics are made by `kafka-pubsub topic create` only",
    "then call topic.resume(ordering_key)": "then publish again",
    "; publish_many can't be used": "",
    " (DelayRouter(..., begin_again=True))": "",
    "(KAFKA_PUBSUB_JAVA or java=)": "(KAFKA_PUBSUB_JAVA)",
    "; on a slow machine wait longer (ready_timeout=)": "",
}
#: The class whose fields a text is about, a setting in `config`, and Python's constants as values.
_CLASS = re.compile(r"^(?:[A-Z][a-z]+){2,}: ")
_SETTING = re.compile(r"config\['([\w.-]+)'\]")
_CONSTANT = re.compile(r"(?<= is )(None|True|False)\b|(?<=, not )(None|True|False)\b")
_CONSTANTS = {"None": "unset", "True": "yes", "False": "no"}


def advice(error: PubSubError, command: click.Command | None = None) -> str:
    """Returns the error's text in the words of the command line, and in those of `command` if one runs."""
    text = error.message
    for call in error.calls:
        text = text.replace(str(call), f"`{_command(call)}`")
    return in_words_of(text, command)


def in_words_of(text: str, command: click.Command | None) -> str:
    """Returns the text with options in place of arguments; what stands between backticks stays as it is."""
    for python, words in _PHRASES.items():
        text = text.replace(python, words)
    options = {} if command is None else _options(command)
    parts = _CLASS.sub("", text).split("`")
    return "`".join(part if at % 2 else _in_options(part, options) for at, part in enumerate(parts))


def _options(command: click.Command) -> dict[str, str]:
    """Returns what a command calls its arguments, by their names in Python; the longest names first."""
    own = {
        each.name: each.opts[0] if isinstance(each, click.Option) else each.human_readable_name
        for each in command.params
    }
    spelt = {python: own[name] for python, name in _SPELT.items() if name in own}
    options = {name: shown for name, shown in own.items() if shown.startswith("--")}
    return dict(sorted((options | spelt).items(), key=lambda item: -len(item[0])))


def _in_options(text: str, options: dict[str, str]) -> str:
    text = _SETTING.sub(r"--config \1", text)
    for name, option in options.items():
        text = _argument(name).sub(_spelling(option), text)
    return _CONSTANT.sub(lambda found: _CONSTANTS[found[0]], text)


def _argument(name: str) -> re.Pattern[str]:
    """Returns the pattern of an argument in a text; a name that may be an English word only where no word can stand."""
    word = rf"(?<![\w.'-]){re.escape(name)}"
    if "_" in name:
        return re.compile(rf"{word}(=?)(?![\w.'(])")
    return re.compile(rf"(?:^|(?<=[;:] )){re.escape(name)}(?=: | must | is |\ \d)()|{word}(=)")


def _spelling(option: str) -> Callable[[re.Match[str]], str]:
    def spell(found: re.Match[str]) -> str:
        value = found.string[found.end() : found.end() + 1]
        has_value = found[0].endswith("=") and value not in {"", ")", ",", ".", ";", " "}
        return f"{option} " if has_value else option

    return spell


def _command(call: Call) -> str:
    words = ["kafka-pubsub", COMMANDS[call.method], shlex.quote(call.name)]
    return " ".join([*words, *(_option(name, value) for name, value in call.options)])


def _option(name: str, value: str | int | EllipsisType) -> str:
    name = _SPELT.get(name, name)
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option
    return f"{option} {name.upper() if value is ... else shlex.quote(str(value))}"
