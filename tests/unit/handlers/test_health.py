"""`/livez` and `/readyz` over HTTP."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import pytest

from kafka_pubsub import FailedPrecondition, InvalidArgument
from kafka_pubsub.handlers import health
from kafka_pubsub.handlers.health import HealthServer, Report, parse_address


def get(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_paths_answer_by_the_report_of_the_moment() -> None:
    reports = [Report(True, False, {"why": "it starts"})]
    with HealthServer("0", lambda: reports[-1]) as server:
        assert get(server.port, "/livez") == (200, {"ok": True, "why": "it starts"})
        assert get(server.port, "/readyz") == (503, {"ok": False, "why": "it starts"})
        reports.append(Report(False, True, {}))
        assert get(server.port, "/livez?x=1") == (503, {"ok": False})
        assert get(server.port, "/readyz") == (200, {"ok": True})
        assert get(server.port, "/")[0] == 404
        with pytest.raises(FailedPrecondition, match=f"http: can't listen on 127.0.0.1:{server.port}"):
            HealthServer(f"127.0.0.1:{server.port}", lambda: reports[-1])


def test_a_client_that_says_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE", 0.1)
    with (
        HealthServer("0", lambda: Report(True, True, {})) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=3) as silent,
    ):
        assert silent.recv(1) == b"", "the server has closed the connection"
        assert get(server.port, "/livez")[0] == 200


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9", ("::1", 9)),
    ],
)
def test_an_address_without_a_host_is_this_machine(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "1:70000"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no HOST:PORT"):
        parse_address(text)
