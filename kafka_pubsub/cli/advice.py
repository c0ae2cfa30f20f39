"""Error texts for the command line: calls that an error advises are replaced by commands."""

from __future__ import annotations

import shlex
from types import EllipsisType

from kafka_pubsub.errors import Call, PubSubError

__all__ = ["COMMANDS", "advice"]

#: By method of `PubSub`: the command that does the same.
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

#: Arguments whose option has another name in a command.
_SPELT = {"dead_letter": "dead_letter_topic", "start": "from"}


def advice(error: PubSubError) -> str:
    """Returns the error's text, with a command in place of each call that it advises."""
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
