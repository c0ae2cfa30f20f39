"""What an error advises is a command on the command line, and Python in Python, out of one text."""

from __future__ import annotations

import ast
import inspect
import pickle
import shlex
from collections.abc import Iterator

import click
import pytest

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli.advice import COMMANDS, advice
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import Call, NotFound
from kafka_pubsub.memory.backend import MemoryBackend
from tests.unit.cli.conftest import CommandLine


@pytest.mark.parametrize(
    ("call", "python", "command"),
    [
        (Call("create_topic", "a"), "create_topic('a')", "kafka-pubsub topic create a"),
        (
            Call("adopt_topic", "a", (("exist_ok", True),)),
            "adopt_topic('a', exist_ok=True)",
            "kafka-pubsub topic adopt a --exist-ok",
        ),
        (
            Call("create_subscription", "s", (("topic", ...),)),
            "create_subscription('s', topic=...)",
            "kafka-pubsub subscription create s --topic TOPIC",
        ),
        (
            Call("create_subscription", "s", (("topic", "a b"),)),
            "create_subscription('s', topic='a b')",
            "kafka-pubsub subscription create s --topic 'a b'",
        ),
        (
            Call("repartition_topic", "a", (("partitions", 3),)),
            "repartition_topic('a', partitions=3)",
            "kafka-pubsub topic repartition a --partitions 3",
        ),
        (
            Call("delete_topic", "it's; rm"),
            'delete_topic("it\'s; rm")',
            "kafka-pubsub topic delete 'it'\"'\"'s; rm'",
        ),
    ],
    ids=str,
)
def test_a_call_is_itself_in_python_and_a_command_on_the_command_line(
    call: Call, python: str, command: str
) -> None:
    error = NotFound(f"gone: {call} helps", calls=[call])
    assert error.message == f"gone: {python} helps"
    assert advice(error) == f"gone: `{command}` helps"


@pytest.mark.parametrize("method", COMMANDS)
def test_what_is_advised_can_be_called_and_typed(method: str) -> None:
    advised: dict[str, str | int] = {
        "exist_ok": True,
        "topic": "x",
        "partitions": 3,
        "remake_retry_topic": True,
    }
    names = {"repartition_topic": {"partitions"}}.get(method, set(advised) - {"partitions"})
    options = tuple(
        (name, advised[name])
        for name in inspect.signature(getattr(PubSub, method)).parameters
        if name in names
    )
    call = Call(method, "x", options)
    ast.parse(str(call))
    program, group, name, *rest = shlex.split(advice(NotFound(str(call), calls=[call])).strip("`"))
    assert program == "kafka-pubsub"
    commands = cli.get_command(click.Context(cli), group)
    assert isinstance(commands, click.Group)
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    command.make_context(name, rest)  # raises if it doesn't take them


def test_an_error_keeps_its_calls_between_processes() -> None:
    error = NotFound("x", calls=[Call("create_topic", "a")])
    assert pickle.loads(pickle.dumps(error)).calls == error.calls


@pytest.fixture
def run() -> Iterator[CommandLine]:
    """A cluster with a topic of ours, one of Kafka's own, and subscriptions, one of them without its topic."""
    backend = MemoryBackend()
    backend.admin.create_topic("kafkas", 1, None, {})
    with PubSub.in_memory(backend, services=False) as pubsub:
        pubsub.create_topic("there")
        pubsub.create_topic("gone")
        pubsub.create_subscription("old", topic="there")
        pubsub.create_subscription("detached", topic="gone")
        pubsub.delete_topic("gone")
        yield CommandLine(pubsub)


@pytest.mark.parametrize(
    ("arguments", "advised"),
    [
        (["topic", "describe", "nix"], "kafka-pubsub topic create nix"),
        (["topic", "describe", "nix"], "kafka-pubsub topic adopt nix"),
        (["topic", "adopt", "nix"], "kafka-pubsub topic create nix"),
        (["topic", "create", "there"], "kafka-pubsub topic create there --exist-ok"),
        (["topic", "create", "kafkas"], "kafka-pubsub topic adopt kafkas"),
        (["publish", "nix", "data"], "kafka-pubsub topic create nix"),
        (["pull", "nix"], "kafka-pubsub subscription create nix --topic TOPIC"),
        (["sub", "create", "s", "--topic", "nix"], "kafka-pubsub topic create nix"),
        (
            ["sub", "create", "old", "--topic", "there"],
            "kafka-pubsub subscription create old --topic there --exist-ok",
        ),
        (["pull", "detached"], "kafka-pubsub subscription delete detached"),
    ],
)
def test_no_error_of_a_command_advises_python(run: CommandLine, arguments: list[str], advised: str) -> None:
    message = str(run.error(*arguments)["message"])
    assert f"`{advised}`" in message
    assert not [method for method in COMMANDS if f"{method}(" in message]
    assert "exist_ok" not in message
