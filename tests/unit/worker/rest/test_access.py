"""Which requests the REST interface takes, and where it may listen."""

from __future__ import annotations

import base64

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.rest.access import Access, check_listening, is_foreign

ACCESS = Access(token="write-it", read_token="read-it", user="ann", password="secret")


def basic(text: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(text.encode()).decode()}


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    "headers", [bearer("write-it"), basic("ann:secret"), {"authorization": "bearer write-it"}]
)
def test_a_token_and_a_user_open_everything(headers: dict[str, str]) -> None:
    assert ACCESS.refusal("GET", "/connectors", headers) == 0
    assert ACCESS.refusal("DELETE", "/connectors/x", headers) == 0


def test_a_token_for_reading_opens_nothing_else() -> None:
    assert ACCESS.refusal("GET", "/connectors", bearer("read-it")) == 0
    assert ACCESS.refusal("PUT", "/connectors/x/pause", bearer("read-it")) == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("write-i"),
        bearer("ü"),
        basic("ann:"),
        basic("ann"),
        basic(":secret"),
        {"authorization": "Basic ?"},
        {"authorization": "write-it"},
    ],
)
def test_anything_else_opens_nothing_but_health(headers: dict[str, str]) -> None:
    for method in ("GET", "PUT"):
        assert ACCESS.refusal(method, "/connectors", headers) == 401
    assert ACCESS.refusal("GET", "/readyz", headers) == 0
    assert ACCESS.refusal("GET", "/metrics", headers) == 401


def test_without_a_token_everything_is_open() -> None:
    assert Access().refusal("DELETE", "/connectors/x", {}) == 0
    assert Access(read_token="x").is_open


def test_no_secret_is_shown() -> None:
    assert "write-it" not in repr(ACCESS)
    assert "secret" not in repr(ACCESS)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_it_listens_without_a_token(host: str) -> None:
    check_listening(host, Access(), has_tls=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "worker.example.com"])
def test_other_machines_reach_it_with_a_token_and_tls_only(host: str) -> None:
    check_listening(host, ACCESS, has_tls=True)
    check_listening(host, Access(insecure=True), has_tls=False)
    with pytest.raises(InvalidArgument, match="no token, or user and password and no cert_file and key_file"):
        check_listening(host, Access(), has_tls=False)
    with pytest.raises(InvalidArgument, match="has no cert_file"):
        check_listening(host, ACCESS, has_tls=False)


@pytest.mark.parametrize(
    ("origin", "foreign"),
    [
        (None, False),
        ("http://localhost:8080", False),
        ("https://localhost:8080", False),
        ("http://localhost:8081", True),
        ("https://evil.example", True),
        ("null", True),
    ],
)
def test_a_page_of_another_origin_is_foreign(origin: str | None, foreign: bool) -> None:
    headers = {"host": "localhost:8080"} | ({} if origin is None else {"origin": origin})
    assert is_foreign(headers) is foreign
