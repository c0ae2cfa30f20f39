"""The REST interface of a worker over the in-memory Kafka: the requests of Kafka Connect's tools, and their answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from kafka_pubsub import PubSub
from kafka_pubsub.worker.control import Control
from tests.support import until
from tests.unit.worker.rest.workers import HOOK, Workers


def error(answer: Any) -> str:
    assert answer.json()["error_code"] == answer.status_code
    return str(answer.json()["message"])


def test_a_connector_made_at_one_worker_runs_at_all_of_them(workers: Workers, client: TestClient) -> None:
    made = client.post("/connectors", json={"name": "hook", "config": HOOK})
    assert made.status_code == 201
    assert made.json() == {"name": "hook", "config": {**HOOK, "name": "hook"}, "tasks": [], "type": "sink"}
    assert made.headers["location"].endswith("/connectors/hook")
    until(lambda: workers.states("hook") == {"RUNNING"})
    assert workers.clients[1].get("/connectors").json() == ["declared", "hook"]
    status = client.get("/connectors/hook/status").json()
    assert [each["id"] for each in status["tasks"]] == [0, 1], "each worker is a member"


def test_pause_stop_resume_and_restart_hold_on_all_workers(workers: Workers, client: TestClient) -> None:
    until(lambda: workers.states("declared") == {"RUNNING"})
    for call, status, state in (
        ("pause", 202, "PAUSED"),
        ("pause", 202, "PAUSED"),
        ("stop", 204, "STOPPED"),
        ("resume", 202, "RUNNING"),
    ):
        assert client.put(f"/connectors/declared/{call}").status_code == status
        workers.wait_for("declared", state)
    before = [worker.lives()["declared"].works_since for worker in workers.workers]
    assert client.post("/connectors/declared/restart").status_code == 204

    def started_again() -> bool:
        now = [worker.lives()["declared"].works_since for worker in workers.workers]
        return all(since not in (None, *before) for since in now)

    until(started_again)
    answer = client.post("/connectors/declared/restart?includeTasks=True&onlyFailed=False")
    assert answer.status_code == 202
    assert answer.json()["connector"]["state"] == "RESTARTING"


def test_a_worker_that_comes_later_follows_what_was_said(
    ps: PubSub, workers: Workers, client: TestClient
) -> None:
    client.put("/connectors/declared/pause")
    client.post("/connectors", json={"name": "hook", "config": HOOK, "initial_state": "STOPPED"})
    later = Workers(ps, 1)
    until(lambda: later.states("declared") == {"PAUSED"})
    until(lambda: "hook" in later.clients[0].get("/connectors").json())
    assert later.states("hook") == {"STOPPED"}
    later.stop()


def test_settings_are_changed_and_removed(workers: Workers, client: TestClient) -> None:
    assert client.put("/connectors/hook/config", json={**HOOK, "timeout": 5}).status_code == 201
    assert client.get("/connectors/hook/config").json() == {**HOOK, "timeout": "5", "name": "hook"}
    changed = client.patch("/connectors/hook/config", json={"timeout": None, "concurrency": 7})
    assert changed.status_code == 200
    assert changed.json()["config"] == {**HOOK, "concurrency": "7", "name": "hook"}
    assert client.put("/connectors/hook/config", json=HOOK).status_code == 200
    assert client.delete("/connectors/hook").status_code == 204
    assert error(client.get("/connectors/hook")) == "Connector hook not found"
    until(lambda: workers.clients[1].get("/connectors").json() == ["declared"])


def test_what_stands_in_the_file_is_changed_there(client: TestClient) -> None:
    for answer in (
        client.put("/connectors/declared/config", json=HOOK),
        client.patch("/connectors/declared/config", json={"timeout": "1"}),
        client.delete("/connectors/declared"),
    ):
        assert answer.status_code == 409
        assert "stands in the workers' file" in error(answer)


def test_an_expanded_list_has_status_and_info(client: TestClient) -> None:
    found = client.get("/connectors?expand=status&expand=info").json()
    assert set(found["declared"]) == {"status", "info"}
    assert client.get("/connectors?expand=nothing").json() == {"declared": {}}


def test_a_connector_that_is_removed_meanwhile_is_left_out_of_the_list(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Control, "names", lambda self: ["declared", "gone"])
    answer = client.get("/connectors?expand=status&expand=info")
    assert answer.status_code == 200
    assert list(answer.json()) == ["declared"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        (
            "POST",
            "/connectors",
            {"name": "declared", "config": HOOK},
            409,
            "Connector declared already exists",
        ),
        ("POST", "/connectors", {"name": "x", "config": {}}, 400, "contains no connector type"),
        (
            "POST",
            "/connectors",
            {"name": "x", "config": {"connector.class": "os:system"}},
            400,
            "there is no connector",
        ),
        ("POST", "/connectors", {"config": HOOK}, 400, "String may not be empty"),
        ("POST", "/connectors", {"name": "x", "config": HOOK, "more": 1}, 400, 'Unrecognized field "more"'),
        (
            "POST",
            "/connectors",
            {"name": "x", "config": HOOK, "initial_state": "NO"},
            400,
            "initial_state 'NO'",
        ),
        (
            "POST",
            "/connectors",
            {"name": "a/b", "config": HOOK},
            400,
            "Invalid value a/b for configuration name",
        ),
        ("POST", "/connectors", [1], 400, "must be an object"),
        (
            "PUT",
            "/connectors/a/config",
            {**HOOK, "name": "b"},
            400,
            "(b) doesn't match connector name in the URL (a)",
        ),
        (
            "PUT",
            "/connectors/a/config",
            {"connector.class": "push"},
            400,
            "contains the following 3 error(s)",
        ),
        ("PUT", "/connectors/a/config", {**HOOK, "timeout": []}, 400, "timeout: list is no text"),
        ("PUT", "/connectors/a/config", {**HOOK, "token": "hunter2hunter2"}, 400, "token: write ${env:NAME}"),
        (
            "PUT",
            "/connectors/a/config",
            {**HOOK, "token": "${hunter2hunter2}"},
            400,
            "token: write ${env:NAME}",
        ),
        ("PATCH", "/connectors/a/config", {}, 404, "Connector a not found"),
        ("DELETE", "/connectors/a", None, 404, "Connector a not found"),
        ("GET", "/connectors/a/status", None, 404, "No status found for connector a"),
        ("PUT", "/connectors/a/pause", None, 404, "Unknown connector a"),
        ("POST", "/connectors/a/restart", None, 404, "Unknown connector: a"),
        ("POST", "/connectors/declared/tasks/9/restart", None, 404, "Unknown task: declared-9"),
        ("GET", "/connectors/declared/tasks/9/status", None, 404, "No status found for task declared-9"),
        ("GET", "/nothing", None, 404, "HTTP 404 Not Found"),
        ("DELETE", "/connectors", None, 405, "HTTP 405 Method Not Allowed"),
        ("GET", "/connector-plugins/none/config", None, 404, "Unknown plugin none"),
    ],
)
def test_what_is_wrong_is_said_as_connect_says_it(
    client: TestClient, method: str, path: str, body: object, status: int, text: str
) -> None:
    answer = client.request(method, path, json=body) if body is not None else client.request(method, path)
    assert answer.status_code == status
    assert text in error(answer)
    assert "hunter2" not in answer.text


def test_a_body_that_is_no_json_and_other_types_are_refused(client: TestClient) -> None:
    plain = {"content-type": "text/plain"}
    assert client.post("/connectors", content="{}", headers=plain).status_code == 415
    typed = {"content-type": "application/json"}
    for body in ("", "{", "null", '"text"', "[]", "[" * 200_000, '{"name": "\\ud800"}', '{"a":' * 200_000):
        assert client.post("/connectors", content=body, headers=typed).status_code == 400
    assert client.get("/", headers={"accept": "application/xml"}).status_code == 406


def test_a_page_of_another_origin_writes_nothing(client: TestClient) -> None:
    foreign = {"origin": "https://evil.example", "content-type": "application/x-www-form-urlencoded"}
    for method, path in (
        ("POST", "/connectors/declared/restart"),
        ("PUT", "/connectors/declared/pause"),
        ("DELETE", "/connectors/declared"),
    ):
        answer = client.request(method, path, headers=foreign)
        assert answer.status_code == 403
        assert "another origin" in error(answer)
    assert "access-control-allow-origin" not in client.get("/connectors", headers=foreign).headers
    own = {"origin": "http://127.0.0.1:8083"}
    assert client.post("/connectors/declared/restart", headers=own).status_code == 204


@pytest.mark.parametrize("slash", ["%2F", "%2f"])
def test_a_slash_in_a_name_is_refused_as_by_connect(client: TestClient, slash: str) -> None:
    assert client.put(f"/connectors/a{slash}b/config", json=HOOK).status_code == 400
    assert client.get(f"/connectors/a{slash}b").status_code == 400


def test_classes_tell_their_settings_and_judge_a_configuration(client: TestClient) -> None:
    assert {"class": "push", "type": "sink"}.items() <= client.get("/connector-plugins").json()[0].items()
    names = [each["name"] for each in client.get("/connector-plugins/push/config").json()]
    assert names[:3] == ["subscription", "topic", "url"]
    good = client.put("/connector-plugins/push/config/validate", json=HOOK).json()
    assert good["error_count"] == 0
    bad = client.put(
        "/connector-plugins/push/config/validate", json={**HOOK, "timeout": "soon", "ulr": "x"}
    ).json()
    wrong = {
        each["value"]["name"]: each["value"]["errors"] for each in bad["configs"] if each["value"]["errors"]
    }
    assert sorted(wrong) == ["timeout", "ulr"]
    assert bad["error_count"] == 2


def test_the_document_of_the_interface_is_served(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "/connectors/{name}/status" in paths
    assert client.get("/").json()["kafka_cluster_id"] == "c"
    assert client.get("/health").json()["status"] == "healthy"


def test_one_name_is_made_once_though_two_workers_are_asked_at_once(workers: Workers) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(
            lambda number: workers.clients[number % 2].post(
                "/connectors", json={"name": "hook", "config": {**HOOK, "timeout": number + 1}}
            ),
            range(8),
        )
        statuses = sorted(each.status_code for each in answers)
    assert statuses == [201] + [409] * 7


def test_a_restart_of_what_has_failed_concerns_all_workers_and_no_other(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {**HOOK, "token": "${env:NOT_SET_HERE}"}
    client.post("/connectors", json={"name": "hook", "config": broken})
    until(lambda: workers.states("hook") <= {"FAILED", "RESTARTING"})
    until(lambda: workers.states("declared") == {"RUNNING"})
    since = [worker.lives()["declared"].works_since for worker in workers.workers]
    monkeypatch.setenv("NOT_SET_HERE", "a-token-that-is-set")
    for name in ("hook", "declared"):
        answer = workers.clients[1].post(f"/connectors/{name}/restart?onlyFailed=true")
        assert answer.status_code == 202
    workers.wait_for("hook", "RUNNING")
    assert [worker.lives()["declared"].works_since for worker in workers.workers] == since


def test_offsets_are_shown_and_moved_while_it_is_stopped(
    ps: PubSub, workers: Workers, client: TestClient
) -> None:
    workers.wait_for("declared", "RUNNING")
    places = [{"kafka_topic": "orders", "kafka_partition": number} for number in range(2)]
    shown = client.get("/connectors/declared/offsets").json()["offsets"]
    assert [each["partition"] for each in shown] == places
    assert error(client.delete("/connectors/declared/offsets")).startswith(
        "Connectors must be in the STOPPED"
    )
    client.put("/connectors/declared/stop")
    for number in range(8):
        ps.topic("orders").publish(b"x", ordering_key=str(number)).result(10)
    wanted = [
        {"partition": places[0], "offset": {"kafka_offset": 1}},
        {"partition": places[1], "offset": None},
    ]
    answer = client.patch("/connectors/declared/offsets", json={"offsets": wanted})
    assert answer.json() == {"message": "The offsets for this connector have been altered successfully"}
    shown = client.get("/connectors/declared/offsets").json()["offsets"]
    assert [each["offset"]["kafka_offset"] for each in shown] == [1, 0]
    assert sum(each["lag"] for each in shown) == 7
    answer = client.delete("/connectors/declared/offsets")
    assert answer.json() == {"message": "The offsets for this connector have been reset successfully"}
    assert sum(each["lag"] for each in client.get("/connectors/declared/offsets").json()["offsets"]) == 8


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "Partitions / offsets need to be provided"),
        ({"offsets": []}, "Partitions / offsets need to be provided"),
        ({"offset": []}, "Unrecognized field 'offset'"),
        ({"offsets": [1]}, "must contain the keys"),
        ({"offsets": [{"partition": {"topic": "orders"}}]}, "must contain the keys"),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": -1}}]},
            "kafka_partition: -1 is no whole number",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "no", "kafka_partition": 0}}]},
            "there is no partition no-0",
        ),
        (
            {"offsets": [{"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"n": 1}}]},
            "should either be null or contain",
        ),
        (
            {
                "offsets": [
                    {
                        "partition": {"kafka_topic": "orders", "kafka_partition": 0},
                        "offset": {"kafka_offset": True},
                    }
                ]
            },
            "kafka_offset: True is no whole number",
        ),
    ],
)
def test_wrong_offsets_are_refused_and_named(client: TestClient, body: object, text: str) -> None:
    until(lambda: client.get("/connectors/declared/offsets").json()["offsets"])
    client.put("/connectors/declared/stop")
    answer = client.patch("/connectors/declared/offsets", json=body)
    assert answer.status_code == 400
    assert text in error(answer)


def test_levels_of_loggers_are_shown_and_set(client: TestClient) -> None:
    name = "kafka_pubsub.of_a_rest_test"
    assert error(client.get(f"/admin/loggers/{name}")) == f"Logger {name} not found."
    assert client.put(f"/admin/loggers/{name}", json={"level": "INFO"}).json() == [name]
    assert client.get(f"/admin/loggers/{name}").json()["level"] == "INFO"
    assert name in client.get("/admin/loggers").json()
    answer = client.put(f"/admin/loggers/{name}", json={"level": "LOUD"})
    assert (answer.status_code, error(answer)) == (404, "invalid log level 'LOUD'.")
    assert client.put(f"/admin/loggers/{name}", json={}).status_code == 400
    assert client.put(f"/admin/loggers/{name}?scope=cluster", json={"level": "INFO"}).status_code == 400


def test_a_page_that_gave_this_machine_a_name_gets_nothing(client: TestClient) -> None:
    for host, status in (("evil.example:8083", 403), ("localhost:8083", 200), ("[::1]:8083", 200)):
        assert client.get("/connectors", headers={"host": host}).status_code == status


def test_a_body_that_is_too_long_is_not_read_to_its_end(client: TestClient) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield b" " * 65536

    answer = client.post("/connectors", content=chunks(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_a_setting_whose_value_is_named_elsewhere_is_checked_when_it_starts(
    workers: Workers, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**HOOK, "concurrency": "${env:CONCURRENCY_HERE}"}
    assert client.post("/connectors", json={"name": "hook", "config": config}).status_code == 201
    until(lambda: workers.states("hook") <= {"FAILED", "RESTARTING"})
    trace = client.get("/connectors/hook/status").json()["connector"]["trace"]
    assert "CONCURRENCY_HERE" in trace
    monkeypatch.setenv("CONCURRENCY_HERE", "7")
    client.post("/connectors/hook/restart")
    workers.wait_for("hook", "RUNNING")
