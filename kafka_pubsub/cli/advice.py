"""What an error advises, in commands instead of Python: the text stays the error's own."""

from __future__ import annotations

import shlex
from types import EllipsisType

from kafka_pubsub.errors import Call, PubSubError

__all__ = ["COMMANDS", "advice"]

#: The command that does what a method of `PubSub` does.
COMMANDS = {
    "create_topic": "topic create",
    "adopt_topic": "topic adopt",
    "delete_topic": "topic delete",
    "create_subscription": "subscription create",
    "update_subscription": "subscription update",
    "recover_subscription": "subscription recover",
    "delete_subscription": "subscription delete",
    "repartition_topic": "topic repartition",
}

#: Options that a command spells in another way than Python's argument.
_SPELT = {"dead_letter": "dead_letter_topic", "start": "from"}


def advice(error: PubSubError) -> str:
    """The error's text, with a command wherever it advises a call."""
    text = error.message
    for call in error.calls:
        text = text.replace(str(call), f"`{_command(call)}`")
    return text


def _command(call: Call) -> str:
    words = ["kafka-pubsub", COMMANDS[call.method], shlex.quote(call.name)]
    return " ".join([*words, *(_option(name, value) for name, value in call.options)])


def _option(name: str, value: str | int | EllipsisType) -> str:
    name = _SPELT.get(name, name)
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option
    return f"{option} {name.upper() if value is ... else shlex.quote(str(value))}"
