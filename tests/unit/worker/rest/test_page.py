"""The page's files: served without a token, under a policy that lets nothing else run, and made without HTML texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from kafka_pubsub import PubSub
from kafka_pubsub.worker.rest.access import Access
from tests.unit.worker.rest.test_operate import app_of

PATHS = {"/ui": "text/html", "/ui/app.js": "text/javascript", "/ui/app.css": "text/css"}


@pytest.fixture
def client() -> Iterator[TestClient]:
    with PubSub.in_memory() as ps:
        yield TestClient(app_of(ps, Access(token="write-it")), "http://127.0.0.1:8083")


def text_of(name: str) -> str:
    return files("kafka_pubsub.worker.rest").joinpath(name).read_text("utf-8")


@pytest.mark.parametrize(("path", "kind"), PATHS.items())
def test_it_is_served_without_a_token_and_under_a_strict_policy(
    client: TestClient, path: str, kind: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    policy = answer.headers["content-security-policy"]
    for each in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert each in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert client.post(path).status_code == 405


def test_what_lies_below_needs_the_token(client: TestClient) -> None:
    for path in ("/ui/api/worker", "/ui/other", "/ui/", "/ui/app.js/x"):
        assert client.get(path, follow_redirects=False).status_code == 401


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = text_of("ui.html")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?! src=)", page)
    assert set(re.findall(r"(?:src|href)=\"([^\"]+)\"", page)) == {"ui/app.js", "ui/app.css"}


def test_the_script_writes_no_html() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|srcdoc", text_of("ui.js")
    )


def test_the_script_asks_for_elements_that_the_page_has() -> None:
    ids = set(re.findall(r"\bid=\"([\w-]+)\"", text_of("ui.html")))
    asked = set(re.findall(r"\$\(\"([\w-]+)\"\)", text_of("ui.js")))
    assert asked
    assert asked <= ids
