"""A worker over the Kafka in memory answers the steps as a stock Kafka Connect does, but for the known differences."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.testclient import TestClient

from kafka_pubsub import PubSub
from tests.contract.connect.steps import Answer, Server, differences, run, steps
from tests.contract.connect.words import MORE, TOPICS, at_worker
from tests.unit.worker.rest.workers import Workers


def over(client: TestClient) -> Server:
    def ask(method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        answer = client.request(method, path, content=content, headers=dict(headers))
        return Answer.of(answer.status_code, answer.text, answer.headers)

    return Server(ask, at_worker("https://endpoint.invalid/"), frozenset({"declared"}), MORE)


def test_a_worker_answers_as_kafka_connect_does() -> None:
    with PubSub.in_memory() as ps:
        for topic in ("orders", *TOPICS):
            ps.create_topic(topic, partitions=1)
        for number in range(3):
            ps.topic("facts").publish(b"%d" % number).result()
        workers = Workers(ps, 1)
        wrong = run(over(workers.clients[0]), steps(), differences())
        workers.stop()
    assert not wrong, "\n".join(wrong)
