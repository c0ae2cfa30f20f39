"""An error advises a command on the command line, and Python in Python, out of the same text."""

from __future__ import annotations

import ast
import pickle
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from kafka_pubsub import errors
from kafka_pubsub.app import PubSub
from kafka_pubsub.cli.advice import COMMANDS, advice, in_words_of
from kafka_pubsub.cli.main import cli
from kafka_pubsub.errors import Call, NotFound
from kafka_pubsub.log.kafka.configuration import RULES
from kafka_pubsub.log.memory.backend import MemoryBackend
from tests.support import parameters
from tests.unit.cli.conftest import CommandLine
from tests.unit.house.repository import PACKAGE, relative


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
        (name, advised[name]) for name in sorted(parameters(getattr(PubSub, method))) if name in names
    )
    call = Call(method, "x", options)
    ast.parse(str(call))
    program, group, name, *rest = shlex.split(advice(NotFound(str(call), calls=[call])).strip("`"))
    assert program == "kafka-pubsub"
    commands = cli.get_command(click.Context(cli), group)
    assert isinstance(commands, click.Group)
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    command.make_context(name, rest)  # raises if the method doesn't take them


def commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


#: Texts that no command can meet, by their beginning: they answer a call that only Python programs make.
ONLY_IN_PYTHON = (
    "config['oauth_cb']",  # the setting's own name
    "config[X] must be a function",
    "group_protocol must be",  # KAFKA_PUBSUB_GROUP_PROTOCOL is checked before, under its own name
    "X has no time zone",  # options have an example
    "deliver_at: X has no time zone",
    "start: X has no time zone",
    "start must be",
    "message X was only looked at",
    "max_messages must",  # checked by click
    "max_workers must",
    "max_latency must",
    "X: topic X isn't causal, so its messages have no place",  # publish_multi
    "topic X was published to before fork()",
    "this PubSub was used before fork()",
    "ordering_key must be a string",
    "ack_ids must",
    "not an ack id",
    "the ack id is",
    "nack(delay=X)",
    "extend(X)",
    "durable must be True or False",
    "no Kafka address",  # the command line has its own error, and refuses an empty --bootstrap
    "no Kafka to talk to",
    "transactional_id",
    "This Kafka",  # LocalKafka
    "max_rate",
)
#: A call, an argument with its `=`, a name with an underscore, a constant.
PYTHON = re.compile(
    r"(?<![\w.`-])(?:[a-z_]+\.)*[a-z_]+\(|\b[A-Z][A-Za-z]+\(|(?<![\w.-])[a-z_]+=(?!=)|"
    r"\b(?!kafka_pubsub)[a-z]+(?:_[a-z]+)+\b|\b(?:True|False|None)\b"
)


def template(node: ast.expr) -> str:
    """The text that an expression builds, with X for unknown parts."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template, node.values))
    if isinstance(node, ast.BinOp):
        return template(node.left) + template(node.right)
    return "X"


def texts() -> Iterator[str]:
    """The texts of all errors that are built where a command may meet them."""
    kinds = {*errors.__all__, "LocalKafkaError", "PartsMissing", "ValueError"} - {"Call"}
    for path in sorted(PACKAGE.rglob("*.py")):
        # A wrong handler is named in the words of its program, a wrong setting in those of the worker's file.
        elsewhere = (
            "kafka_pubsub/cli/",
            "kafka_pubsub/aio/",
            "kafka_pubsub/log/memory/",
            "kafka_pubsub/handlers/",
            "kafka_pubsub/worker/",
        )
        if relative(path).startswith(elsewhere):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                yield from map(template, node.args[:1])
    yield from RULES.values()


def test_no_error_that_a_command_meets_has_words_of_python() -> None:
    parameters = {each.name: each for command in commands(cli) for each in command.params}
    every = click.Command("all", params=list(parameters.values()))
    found = {}
    for text in texts():
        outside = in_words_of(text, every).split("`")[::2]
        words = [word for part in outside for word in PYTHON.findall(part)]
        if words and not text.startswith(ONLY_IN_PYTHON):
            found[text] = words
    assert found == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "DeadLetterPolicy: max_attempts must be at least 1 (got 0)",
            "--max-attempts must be at least 1 (got 0)",
        ),
        ("SubscriptionOptions: x is no setting; ageing must be at least 0 (got -1)", None),
        ("dead_letter.topic 'x' doesn't exist", "--dead-letter-topic 'x' doesn't exist"),
        ("message_ordering is None, not True", "--ordering is unset, not yes"),
        ("topic 'max_attempts' isn't there", "topic 'max_attempts' isn't there"),
        ("`create_topic max_attempts` stays", "`create_topic max_attempts` stays"),
        ("give it (topic=), or topic='x'", "give it (--topic), or --topic 'x'"),
        ("the topic is gone", "the topic is gone"),
        ("with create=False (KAFKA_PUBSUB_CREATE) no", "with KAFKA_PUBSUB_CREATE=false no"),
        ("config['group.id'] can't be set", "--config group.id can't be set"),
    ],
)
def test_arguments_become_the_options_of_the_command(text: str, words: str | None) -> None:
    group = cli.get_command(click.Context(cli), "subscription")
    assert isinstance(group, click.Group)
    create = group.get_command(click.Context(group), "create")
    expected = "x is no setting; --ageing must be at least 0 (got -1)" if words is None else words
    assert in_words_of(text, create) == expected


def test_an_error_keeps_its_calls_between_processes() -> None:
    error = NotFound("x", calls=[Call("create_topic", "a")])
    assert pickle.loads(pickle.dumps(error)).calls == error.calls


@pytest.fixture
def run() -> Iterator[CommandLine]:
    """A cluster with a topic of ours, a topic of Kafka's own, and subscriptions, of which some have no topic."""
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
        (["publish", "there", "x", "--transient"], "kafka-pubsub topic update there --transient"),
        (["publish", "there", "x", "--priority", "3"], "kafka-pubsub topic update there --priorities 4"),
    ],
)
def test_no_error_of_a_command_advises_python(run: CommandLine, arguments: list[str], advised: str) -> None:
    message = str(run.error(*arguments)["message"])
    assert f"`{advised}`" in message
    assert not [method for method in COMMANDS if f"{method}(" in message]
    assert "exist_ok" not in message
