"""The checks of `doctor` that need no broker."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_pubsub.access.rights import Access, rules_of
from kafka_pubsub.app import PubSub
from kafka_pubsub.cli.examination import Tools, _rights
from kafka_pubsub.log.kafka.cluster_facts import ClusterFacts

TOOLS = Tools("k:1", "my login")


class Granted(ClusterFacts):
    """A cluster that grants this client some operations on the topics that it may know, and none on others."""

    def __init__(self, topics: dict[str, Collection[str] | None]) -> None:
        self._topics = topics

    def topic_operations(self, name: str) -> Collection[str] | None:
        return self._topics.get(name, ())

    def group_operations(self, name: str) -> Collection[str] | None:
        return ()

    def cluster_operations(self) -> Collection[str]:
        return ()


@pytest.mark.parametrize(
    ("role", "extras"),
    [("router", ()), ("sequencer", ()), ("publisher", ("delays",)), ("subscriber", ())],
)
def test_a_client_without_rights_lacks_each(role: str, extras: tuple[str, ...]) -> None:
    rules = rules_of(role, Access(["orders"], "billing", extras=extras))
    with PubSub.in_memory(services=False) as pubsub:
        found = list(_rights(Granted({}), TOOLS, pubsub, rules))
    assert len(found) == len([each for each in rules if each.type != "transactionalId"])
    assert [each.says for each in found if each.ok] == []
    assert all("--bootstrap-server k:1 --command-config 'my login' --add" in each.mend for each in found)


def test_what_cannot_be_seen_is_no_failure() -> None:
    rules = [each for each in rules_of("admin", Access(["orders"], "billing")) if each.prefix]
    with PubSub.in_memory(services=False) as pubsub:
        own, retries = _rights(Granted({"_kafka_pubsub.catalog": None}), TOOLS, pubsub, rules)
    assert own.ok
    assert "there is none yet" in own.says
    assert retries.ok
    assert "this client sees none" in retries.says
