"""The declared topics as Terraform JSON and as Strimzi resources, for clusters that such a tool owns.

Rules
1. The text depends on the declaration alone, so that it can be kept beside it and compared.
2. Kubernetes allows no underscore in a name, so a resource has none; `topicName` says the topic's real name.
"""

from __future__ import annotations

import json

from kafka_pubsub.delays.declaration import DelayDeclaration, wanted_topics

__all__ = ["render_strimzi", "render_terraform"]


def render_terraform(declaration: DelayDeclaration) -> str:
    """Returns a Terraform module as JSON, with a `kafka_topic` for each topic.

    `partitions`, `replication_factor` and `settings` are variables of the module: the cluster's owner decides.
    What delays need wins over `settings`.
    """
    topics = wanted_topics(declaration)
    module = {
        "terraform": {"required_providers": {"kafka": {"source": "Mongey/kafka", "version": ">= 0.7"}}},
        "variable": {
            "partitions": {
                "type": "number",
                "description": "How many routers can share the work. It can't be changed later.",
                "default": declaration.partitions,
            },
            "replication_factor": {
                "type": "number",
                "description": "Copies of each record.",
                "default": declaration.replication or 3,
            },
            "settings": {
                "type": "map(string)",
                "description": "Topic settings beside those that delays need, such as min.insync.replicas.",
                "default": {},
            },
        },
        "locals": {
            "topics": [topic.name for topic in topics],
            "settings": {name: _escape(value) for name, value in topics[-1].settings.items()},
            # Where messages come in, which is the first topic, brokers stamp them.
            "ingest": {name: _escape(value) for name, value in topics[0].settings.items()},
        },
        "resource": {
            "kafka_topic": {
                "delays": {
                    "for_each": "${toset(local.topics)}",
                    "name": "${each.key}",
                    "partitions": "${var.partitions}",
                    "replication_factor": "${var.replication_factor}",
                    "config": "${merge(var.settings, each.key == local.topics[0] ? local.ingest : local.settings)}",
                    "lifecycle": {"prevent_destroy": True},
                }
            }
        },
        "output": {"topics": {"description": "The topics' names.", "value": "${local.topics}"}},
    }
    return json.dumps(module, indent=2) + "\n"


def render_strimzi(declaration: DelayDeclaration) -> str:
    """Returns a `KafkaTopic` for each topic, as YAML; the label `strimzi.io/cluster` is for you to set."""
    parts = []
    for topic in wanted_topics(declaration):
        lines = [
            "apiVersion: kafka.strimzi.io/v1",
            "kind: KafkaTopic",
            "metadata:",
            f"  name: {resource_name(topic.name)}",
            "  labels:",
            "    strimzi.io/cluster: my-cluster",
            "spec:",
            f"  topicName: {topic.name}",
            f"  partitions: {topic.partitions}",
        ]
        if topic.replication is not None:
            lines.append(f"  replicas: {topic.replication}")
        lines.append("  config:")
        lines += [f"    {name}: {json.dumps(value)}" for name, value in topic.settings.items()]
        parts.append("\n".join(lines) + "\n")
    return "---\n".join(parts)


def _escape(value: str) -> str:
    """Returns a value in which Terraform puts nothing in the place of `${...}` and `%{...}`."""
    return value.replace("${", "$${").replace("%{", "%%{")


def resource_name(topic: str) -> str:
    """Returns a name that Kubernetes takes: `_kafka_pubsub.delay.00` is `kafka-pubsub-delay-00`."""
    return topic.strip("_").replace("_", "-").replace(".", "-")
