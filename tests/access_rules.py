"""The rules of `deploy/multicast/rules.json`, for some topics and a subscription, and how pages show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["RULES", "Rule", "acl_commands", "rules_of", "strimzi_users"]

RULES = Path(__file__).parents[1] / "deploy" / "multicast" / "rules.json"


class Rule(NamedTuple):
    """The operations that a role may do with a resource."""

    type: str
    name: str
    prefix: bool
    operations: tuple[str, ...]


def rules_of(role: str, topics: Sequence[str], subscription: str = "") -> list[Rule]:
    """Returns the rules of a role; rules with `{topic}` for each topic."""
    rules: dict[Rule, None] = {}
    for said in json.loads(RULES.read_text(encoding="utf-8"))[role]:
        for topic in topics:
            name = said["name"].format(topic=topic, subscription=subscription)
            rules[Rule(said["type"], name, said.get("prefix", False), tuple(said["operations"]))] = None
    return list(rules)


def acl_commands(role: str, topics: Sequence[str], subscription: str) -> str:
    """Returns the commands of Kafka's own tool that grant a role's rules."""
    options = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
    lines = []
    for rule in rules_of(role, topics, subscription):
        operations = " ".join(f"--operation {each}" for each in rule.operations)
        prefix = " --resource-pattern-type prefixed" if rule.prefix else ""
        lines.append(
            f"kafka-acls.sh --bootstrap-server $KAFKA --add --allow-principal User:{role} {operations} "
            f"--{options[rule.type]} {rule.name}{prefix}"
        )
    return "".join(f"{line}\n" for line in lines)


def strimzi_users(topics: Sequence[str], subscription: str) -> str:
    """Returns a `KafkaUser` for each role."""
    return "---\n".join(
        _strimzi_user(role, topics if role != "subscriber" else topics[:1], subscription)
        for role in ("publisher", "sequencer", "subscriber")
    )


def _strimzi_user(role: str, topics: Sequence[str], subscription: str) -> str:
    lines = [
        "apiVersion: kafka.strimzi.io/v1beta2",
        "kind: KafkaUser",
        "metadata:",
        f"  name: {role}",
        "  labels:",
        "    strimzi.io/cluster: my-cluster",
        "spec:",
        "  authentication:",
        "    type: tls",
        "  authorization:",
        "    type: simple",
        "    acls:",
    ]
    for rule in rules_of(role, topics, subscription):
        lines += [
            "      - resource:",
            f"          type: {rule.type}",
            f"          name: {rule.name}",
            f"          patternType: {'prefix' if rule.prefix else 'literal'}",
            f"        operations: [{', '.join(rule.operations)}]",
        ]
    return "".join(f"{line}\n" for line in lines)
