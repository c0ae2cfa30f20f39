"""Access rules in the forms of Kafka's own tool and of Strimzi."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from typing import Final

from kafka_pubsub.access.rights import Rule
from kafka_pubsub.errors import InvalidArgument

__all__ = ["render_commands", "render_user", "server_options"]

_OPTIONS: Final = {
    "topic": "--topic {}",
    "group": "--group {}",
    "transactionalId": "--transactional-id {}",
    "cluster": "--cluster",
}
#: What Kubernetes takes as a name.
_NAME: Final = re.compile(r"(?!.{254})[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: A name that YAML reads as text without quotes.
_PLAIN: Final = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_][\w.-]*", re.IGNORECASE | re.ASCII
)


def render_commands(
    rules: Sequence[Rule], principal: str, address: str | None = None, *, command_config: str | None = None
) -> str:
    """Returns the commands of Kafka's own tool that grant the rules to a principal, as `User:billing`.

    `address` (default: the shell's variable `KAFKA`) and `command_config`, the file with the login (default: none),
    are those with which the tool connects.
    """
    lines = []
    cluster = server_options(address, command_config)
    for rule in rules:
        operations = " ".join(f"--operation {each}" for each in rule.operations)
        prefix = " --resource-pattern-type prefixed" if rule.prefix else ""
        lines.append(
            f"kafka-acls.sh {cluster} --add --allow-principal {shlex.quote(principal)} {operations} "
            f"{_OPTIONS[rule.type].format(shlex.quote(rule.name))}{prefix}"
        )
    return "".join(f"{line}\n" for line in lines)


def server_options(address: str | None, command_config: str | None) -> str:
    """Returns the options with which Kafka's own tools connect, quoted for a shell."""
    server = f"--bootstrap-server {'$KAFKA' if address is None else shlex.quote(address)}"
    return f"{server} --command-config {shlex.quote(command_config)}" if command_config else server


def render_user(rules: Sequence[Rule], principal: str) -> str:
    """Returns a `KafkaUser` of Strimzi's with the rules; the label `strimzi.io/cluster` is for you to set.

    It has the name in `principal`: `User:shop` or, as Strimzi's certificates have it, `User:CN=shop`. Raises
    `InvalidArgument` for another one, which a `KafkaUser` can't stand for.
    """
    name = principal.removeprefix("User:").removeprefix("CN=")
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"principal: a KafkaUser is a principal User:NAME or User:CN=NAME, where NAME has small letters, digits, "
            f"'-' and '.' only, and {principal!r} isn't: give such a one, or take the commands of kafka-acls"
        )
    lines = [
        "apiVersion: kafka.strimzi.io/v1",
        "kind: KafkaUser",
        "metadata:",
        f"  name: {_quoted(name)}",
        "  labels:",
        "    strimzi.io/cluster: my-cluster",
        "spec:",
        "  authentication:",
        "    type: tls",
        "  authorization:",
        "    type: simple",
        "    acls:",
    ]
    for rule in rules:
        lines += ["      - resource:", f"          type: {rule.type}"]
        if rule.type != "cluster":
            lines += [
                f"          name: {_quoted(rule.name)}",
                f"          patternType: {'prefix' if rule.prefix else 'literal'}",
            ]
        lines.append(f"        operations: [{', '.join(rule.operations)}]")
    return "".join(f"{line}\n" for line in lines)


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)
