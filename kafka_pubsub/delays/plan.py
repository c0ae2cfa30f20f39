"""What is to be done until a cluster has the declared topics, and doing it.

Rules
1. A plan changes nothing. Applying makes what is missing and sets settings; it never deletes a topic, and never changes
   a number of partitions, because messages wait in them.
2. Where the client may not see a topic's settings, the plan says so instead of guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from kafka_pubsub.delays.declaration import DelayDeclaration, WantedTopic, wanted_topics
from kafka_pubsub.delays.layout import MOST_TIERS, tier_topic
from kafka_pubsub.errors import AlreadyExists, FailedPrecondition
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import TopicInfo

__all__ = ["Change", "ChangeKind", "Topology"]


class ChangeKind(Enum):
    """What has to be done about a topic, or can't be done."""

    CREATE = "create"
    SET = "set"
    REFUSED = "refused"


class Change(NamedTuple):
    """One difference between a cluster and the declaration; `setting`, `old` and `new` only where a setting differs."""

    kind: ChangeKind
    topic: str
    text: str
    setting: str = ""
    old: str = ""
    new: str = ""


class Topology:
    """The declared topics of one cluster."""

    def __init__(self, admin: Admin, *, may_create: bool) -> None:
        self._admin, self._may_create = admin, may_create

    def plan(self, declaration: DelayDeclaration) -> list[Change]:
        """Returns what differs, in the order of the topics; nothing if all is as declared."""
        there = set(self._admin.topic_names())
        found: list[Change] = []
        for wanted in wanted_topics(declaration):
            if wanted.name in there:
                found += _compare(wanted, self._admin.topic(wanted.name))
            else:
                copies = "the broker's default" if wanted.replication is None else str(wanted.replication)
                text = f"create with {wanted.partitions} partitions, replication {copies}"
                found.append(Change(ChangeKind.CREATE, wanted.name, text))
        more = [name for name in map(tier_topic, range(declaration.tiers, MOST_TIERS)) if name in there]
        if more:
            text = (
                f"{len(more)} tiers more than declared: messages may wait there; declare tiers={_tiers(more)}"
            )
            found.append(Change(ChangeKind.REFUSED, more[0], text))
        return found

    def apply(
        self, declaration: DelayDeclaration, on_change: Callable[[Change], None] = lambda change: None
    ) -> Sequence[Change]:
        """Does what the plan says and returns it; if a part is refused, raises `FailedPrecondition` before anything."""
        changes = self.plan(declaration)
        refused = [change for change in changes if change.kind is ChangeKind.REFUSED]
        if refused:
            raise FailedPrecondition("; ".join(f"{change.topic}: {change.text}" for change in refused))
        if not self._may_create and any(change.kind is ChangeKind.CREATE for change in changes):
            raise FailedPrecondition(
                "topics are missing, and with create=False (KAFKA_PUBSUB_CREATE) none are made: have them made, or "
                "leave that setting out"
            )
        wanted = {each.name: each for each in wanted_topics(declaration)}
        # The topic that publishers look for comes last: where it is, all are.
        for change in reversed(changes):
            if change.kind is ChangeKind.CREATE:
                topic = wanted[change.topic]
                with suppress(AlreadyExists):  # a router that starts makes the same topics
                    self._admin.create_topic(topic.name, topic.partitions, topic.replication, topic.settings)
            else:
                self._admin.update_topic(change.topic, {change.setting: change.new})
            on_change(change)
        return changes


def _compare(wanted: WantedTopic, found: TopicInfo) -> list[Change]:
    changes: list[Change] = []
    if found.partitions != wanted.partitions:
        text = (
            f"has {found.partitions} partitions, and {wanted.partitions} are declared: they can't be changed while "
            f"messages wait; declare partitions={found.partitions}"
        )
        changes.append(Change(ChangeKind.REFUSED, wanted.name, text))
    if wanted.replication not in (None, found.replication):
        text = (
            f"has {found.replication} copies, and {wanted.replication} are declared: move replicas with Kafka's own "
            "tools (kafka-reassign-partitions.sh)"
        )
        changes.append(Change(ChangeKind.REFUSED, wanted.name, text))
    if not found.config:
        text = "its settings can't be read: this client needs DescribeConfigs on it"
        changes.append(Change(ChangeKind.REFUSED, wanted.name, text))
    for name, new in wanted.settings.items():
        old = found.config.get(name)
        if old is not None and old != new:
            changes.append(Change(ChangeKind.SET, wanted.name, f"{name}: {old} -> {new}", name, old, new))
    return changes


def _tiers(names: Sequence[str]) -> int:
    return max(int(name.rpartition(".")[2]) for name in names) + 1
