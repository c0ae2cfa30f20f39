"""HEAD and OPTIONS of a worker's paths."""

from __future__ import annotations

from starlette.testclient import TestClient


def test_head_is_get_without_a_body(client: TestClient) -> None:
    shown = client.get("/connectors/declared/config")
    head = client.head("/connectors/declared/config")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == shown.headers["content-length"]
    assert client.head("/connectors/nothing").status_code == 404
    assert client.head("/connectors/declared/pause").status_code == 405


def test_options_tell_the_methods_of_a_path(client: TestClient) -> None:
    answer = client.options("/connectors/declared")
    assert (answer.status_code, answer.text) == (200, "DELETE, GET, HEAD, OPTIONS")
    assert answer.headers["allow"] == "DELETE,GET,HEAD,OPTIONS"
    assert client.options("/connectors/declared/pause").headers["allow"] == "OPTIONS,PUT"
    assert client.options("/nothing").status_code == 404
