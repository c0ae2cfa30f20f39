"""Access rules in the forms of Kafka's own tool and of Strimzi."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafka_pubsub.access.rights import Rule

__all__ = ["render_commands", "render_user"]

_OPTIONS: Final = {
    "topic": "--topic {}",
    "group": "--group {}",
    "transactionalId": "--transactional-id {}",
    "cluster": "--cluster",
}


def render_commands(rules: Sequence[Rule], principal: str, address: str = "$KAFKA") -> str:
    """Returns the commands of Kafka's own tool that grant the rules to a principal, as `User:billing`."""
    lines = []
    for rule in rules:
        operations = " ".join(f"--operation {each}" for each in rule.operations)
        prefix = " --resource-pattern-type prefixed" if rule.prefix else ""
        lines.append(
            f"kafka-acls.sh --bootstrap-server {address} --add --allow-principal {principal} {operations} "
            f"{_OPTIONS[rule.type].format(rule.name)}{prefix}"
        )
    return "".join(f"{line}\n" for line in lines)


def render_user(rules: Sequence[Rule], name: str) -> str:
    """Returns a `KafkaUser` of Strimzi's with the rules; the label `strimzi.io/cluster` is for you to set."""
    lines = [
        "apiVersion: kafka.strimzi.io/v1",
        "kind: KafkaUser",
        "metadata:",
        f"  name: {name}",
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
                f"          name: {rule.name}",
                f"          patternType: {'prefix' if rule.prefix else 'literal'}",
            ]
        lines.append(f"        operations: [{', '.join(rule.operations)}]")
    return "".join(f"{line}\n" for line in lines)
