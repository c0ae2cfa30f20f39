"""Workers over the in-memory Kafka, each with a REST interface."""

from __future__ import annotations

import contextlib

from fastapi import FastAPI
from starlette.testclient import TestClient

from kafka_pubsub import PubSub
from kafka_pubsub.worker.control import Control
from kafka_pubsub.worker.follower import Follower
from kafka_pubsub.worker.rest.app import make_app
from kafka_pubsub.worker.settings import parse
from kafka_pubsub.worker.units import make_unit
from kafka_pubsub.worker.worker import Worker
from tests.support import until

HOOK = {
    "connector.class": "push",
    "subscription": "hook",
    "topic": "orders",
    "url": "https://endpoint.invalid/hook",
}
FILE = '[connectors.declared]\nclass = "push"\nsubscription = "d"\ntopic = "orders"\nurl = "https://endpoint.invalid/"'


class Workers:
    """Workers with one file, on one Kafka."""

    def __init__(self, ps: PubSub, count: int) -> None:
        self.workers: list[Worker] = []
        self.followers: list[Follower] = []
        self.apps: list[FastAPI] = []
        self.clients: list[TestClient] = []
        for number in range(count):
            backend = ps._cluster.backend
            worker = Worker(
                lambda name, settings: make_unit(name, settings, lambda: contextlib.nullcontext(ps)),
                grace=10,
            )
            follower = Follower(worker, backend.catalog.connectors)
            follower.start(parse(FILE, "worker.toml"))
            control = Control(follower, worker, lambda: ps._cluster.backend, f"127.0.0.1:{number}")
            self.workers.append(worker)
            self.followers.append(follower)
            self.apps.append(make_app(control, "1", lambda: "c", pubsub=ps))
            self.clients.append(
                TestClient(self.apps[-1], "http://127.0.0.1:8083", raise_server_exceptions=False)
            )

    def states(self, name: str) -> set[str]:
        """The states that the workers tell; "" if a worker doesn't know the unit yet."""
        answers = [client.get(f"/connectors/{name}/status").json() for client in self.clients]
        return {each.get("connector", {"state": ""})["state"] for each in answers}

    def wait_for(self, name: str, state: str) -> None:
        until(lambda: self.states(name) == {state}, f"{name} {state}")

    def stop(self) -> None:
        for follower in self.followers:
            follower.stop()
        for worker in self.workers:
            assert worker.stop() == []
