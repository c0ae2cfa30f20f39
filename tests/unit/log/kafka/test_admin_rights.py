"""A client that may see a topic but not its settings; integration/test_access_rules.py has a broker with rules."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pubsub.errors import PermissionDenied
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.configuration import Configuration


class ScriptedClient:
    """Gives the answers of the test."""

    def __init__(self, *, may_see: bool) -> None:
        self._may_see = may_see

    def describe_topics(self, topics: object, **_: float) -> dict[str, Future[object]]:
        partition = SimpleNamespace(replicas=[1, 2], leader=1)
        found = SimpleNamespace(topic_id="id", partitions=[partition] * 3)
        return {"orders": _answer(found) if self._may_see else _denial()}

    def describe_configs(self, resources: list[object], **_: float) -> dict[object, Future[object]]:
        return {resources[0]: _denial()}

    def poll(self, timeout: float) -> int:
        return 0


def _answer(value: object) -> Future[object]:
    future: Future[object] = Future()
    future.set_result(value)
    return future


def _denial() -> Future[object]:
    future: Future[object] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")))
    return future


def _admin(monkeypatch: pytest.MonkeyPatch, client: ScriptedClient) -> KafkaAdmin:
    handles = ClientFactory(Configuration("localhost:1", {}))
    monkeypatch.setattr(handles, "admin", lambda on_error=None: client)
    return KafkaAdmin(handles)


def test_without_the_right_to_see_settings_a_topic_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    info = _admin(monkeypatch, ScriptedClient(may_see=True)).topic("orders")
    assert (info.topic_id, info.partitions, info.replication) == ("id", 3, 2)
    # A stock broker's limit, and no claim beyond.
    assert (info.max_message_bytes, dict(info.config)) == (1_048_588, {})


def test_without_any_right_it_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PermissionDenied, match=r"this client needs DESCRIBE on topic 'orders'"):
        _admin(monkeypatch, ScriptedClient(may_see=False)).topic("orders")
