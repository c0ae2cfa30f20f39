"""A client of Kafka Connect works unchanged; any request out of the document, and many at once, are answered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from kafka_connect import KafkaConnect
from requests import HTTPError
from schemathesis.core.result import Ok

from kafka_pubsub.handlers.health import Report
from kafka_pubsub.worker.control import Control
from kafka_pubsub.worker.rest.app import make_app
from kafka_pubsub.worker.rest.server import RestServer
from tests.support import until
from tests.unit.worker.rest.workers import HOOK, Workers

CLIENTS = 200
#: The threads that Starlette has for routes that wait.
THREADS = 40
HERE = {"host": "127.0.0.1"}


def test_kafka_connect_py_makes_steers_and_removes_a_connector(workers: Workers) -> None:
    with RestServer(workers.apps[0], "127.0.0.1", 0) as server:
        client = KafkaConnect(f"http://127.0.0.1:{server.port}")
        assert client.get_cluster_info()["kafka_cluster_id"] == "c"
        assert client.create_connector({"name": "hook", "config": HOOK})["name"] == "hook"
        with pytest.raises(HTTPError, match="409"):
            client.create_connector({"name": "hook", "config": HOOK})
        workers.wait_for("hook", "RUNNING")
        assert client.list_connectors() == ["declared", "hook"]
        assert set(client.list_connectors(expand="status")) == {"declared", "hook"}
        client.update_connector("hook", {**HOOK, "timeout": "3"})
        assert client.get_connector_config("hook")["timeout"] == "3"
        client.pause_connector("hook")
        assert client.get_connector_status("hook")["connector"]["state"] == "PAUSED"
        client.resume_connector("hook")
        client.restart_connector("hook")
        workers.wait_for("hook", "RUNNING")
        until(lambda: len(client.list_connector_tasks("hook")) == 2)
        assert client.get_connector_task_status("hook", 0)["state"] == "RUNNING"
        client.restart_connector_task("hook", 0)
        client.stop_connector("hook")
        until(lambda: client.get_connector_status("hook")["tasks"] == [])
        assert client.list_connector_topics("hook") == {"hook": {"topics": ["orders"]}}
        client.reset_connector_topics("hook")
        assert [each["class"] for each in client.list_connector_plugins()] == ["push"]
        assert client.validate_connector_config("push", HOOK)["error_count"] == 0
        client.delete_connector("hook")
        with pytest.raises(HTTPError, match="404"):
            client.get_connector("hook")


def test_no_request_out_of_the_document_is_a_failure_of_ours(workers: Workers) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", workers.apps[0], headers=HERE)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()

        @settings(
            max_examples=15,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            answer = case.call(headers=HERE)
            assert answer.status_code < 500, (case.method, case.path, answer.text)

        ask()


def test_many_clients_at_once_are_all_answered(workers: Workers) -> None:
    with RestServer(workers.apps[0], "127.0.0.1", 0) as server, ThreadPoolExecutor(CLIENTS) as pool:

        def ask(_: int) -> int:
            with urlopen(f"http://127.0.0.1:{server.port}/connectors?expand=status", timeout=60) as answer:
                return int(answer.status)

        assert set(pool.map(ask, range(CLIENTS))) == {200}


@pytest.mark.parametrize("path", ["livez", "readyz", "metrics"])
def test_supervisors_are_answered_while_all_threads_wait_for_kafka(workers: Workers, path: str) -> None:
    waiting, is_back = threading.Semaphore(0), threading.Event()

    def cluster_id() -> str:
        waiting.release()
        assert is_back.wait(30)
        return "c"

    control = Control(
        workers.followers[0], workers.workers[0], lambda: pytest.fail("the catalog isn't asked"), "here"
    )
    app = make_app(
        control,
        "1",
        cluster_id,
        report=lambda: Report(True, True, {}),
        metrics=lambda accept: ("text/plain", b"up 1"),
    )
    with RestServer(app, "127.0.0.1", 0) as server, ThreadPoolExecutor(THREADS) as pool:

        def ask(path: str, timeout: float) -> int:
            with urlopen(f"http://127.0.0.1:{server.port}/{path}", timeout=timeout) as answer:
                return int(answer.status)

        asked = [pool.submit(ask, "", 30) for _ in range(THREADS)]
        try:
            assert all(waiting.acquire(timeout=10) for _ in range(THREADS))
            assert ask(path, 2) == 200
        finally:
            is_back.set()
        assert {each.result(30) for each in asked} == {200}
