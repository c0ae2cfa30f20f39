"""What brokers are set to, as far as they tell."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from kafka_pubsub.log.kafka.broker_settings import least_setting

NAME = "offset.metadata.max.bytes"


class Brokers:
    """An admin client whose brokers answer what is given: a value, None for no such setting, or an error's code."""

    def __init__(self, answers: dict[int, str | int | None], cluster: int | None = None) -> None:
        self._answers = answers
        self._cluster = cluster

    def describe_cluster(self, request_timeout: float) -> Future[object]:
        if self._cluster is not None:
            return _future(self._cluster)
        return _future(SimpleNamespace(nodes=[SimpleNamespace(id=each) for each in self._answers]))

    def describe_configs(
        self, resources: list[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[object]]:
        (resource,) = resources  # a request goes to a single broker only
        answer = self._answers[int(resource.name)]
        if isinstance(answer, int):
            return {resource: _future(answer)}
        return {resource: _future({} if answer is None else {NAME: SimpleNamespace(value=answer)})}


def _future(answer: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future


def _least(brokers: Brokers) -> int | None:
    return least_setting(cast("AdminClient", brokers), NAME, lambda future: future.result(0))


@pytest.mark.parametrize(
    ("answers", "least"),
    [
        ({1: "4096"}, 4096),
        ({1: "4096", 2: "1024", 3: "8192"}, 1024),
        ({1: KafkaError._TIMED_OUT, 2: "2048"}, 2048),
        ({1: KafkaError.CLUSTER_AUTHORIZATION_FAILED, 2: KafkaError.CLUSTER_AUTHORIZATION_FAILED}, None),
        ({1: None}, None),
    ],
)
def test_the_least_value_that_is_told_counts(answers: dict[int, str | int | None], least: int | None) -> None:
    assert _least(Brokers(answers)) == least


def test_a_cluster_that_shows_no_brokers_tells_nothing() -> None:
    assert _least(Brokers({}, KafkaError.CLUSTER_AUTHORIZATION_FAILED)) is None


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(KafkaException):
        _least(Brokers({}, KafkaError._TRANSPORT))
