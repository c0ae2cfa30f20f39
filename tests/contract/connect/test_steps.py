"""The comparison finds each failure, and the known differences are told on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.connect.steps import Answer, Server, Step, compare, differences, problems, run, steps

PAGE = Path(__file__).parents[3] / "docs" / "worker.md"


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (1, 1),
        ("x", "<text>"),
        (None, "<text or null>"),
        ("a: b", "a<more>"),
        ({"a": 1}, {"a": "<number>", "b?": "<text>"}),
        ({"a": 1, "lag": 3}, {"a": 1}),
        ({"x": 1, "y": 2}, {"<each>": "<number>"}),
        ([], ["<any number>", "<text>"]),
        (["b", "a"], ["<in any order>", "a", "b"]),
    ],
)
def test_what_fits(found: object, wanted: object) -> None:
    assert compare(found, wanted, frozenset({"lag"})) == []


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (1, 2),
        (1, True),
        ("", "<text>"),
        (True, "<number>"),
        ("ASLEEP", "<state>"),
        ("b: a", "a<more>"),
        ({"b": "x"}, {"a": "<number>", "b?": "<text>"}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 1, "b?": "<text>"}),
        ({}, {"<each>": "<number>"}),
        ({"x": "1"}, {"<each>": "<number>"}),
        ([], ["<each>", "<text>"]),
        (["x", 1], ["<any number>", "<text>"]),
        (["b"], ["<in any order>", "a", "b"]),
        ([1, 2], [1]),
        (None, []),
        ({}, []),
    ],
)
def test_what_does_not_fit(found: object, wanted: object) -> None:
    assert compare(found, wanted, frozenset({"lag"})) != []


def test_status_location_and_methods_count() -> None:
    server = Server(lambda *request: Answer(500, None), {})
    step = Step("a", "GET /", 200, location="/connectors/a", allow=["GET"])
    assert len(problems(server, step, Answer(500, None))) == 3
    right = Answer(200, None, {"location": "http://worker/connectors/a", "allow": "GET"})
    assert problems(server, step, right) == []


def test_a_step_may_have_another_right_answer() -> None:
    step = Step("a", "GET /", 404, other={"status": 200})
    server = Server(lambda *request: Answer(200, None), {})
    assert run(server, [step]) == []
    assert run(Server(lambda *request: Answer(500, None), {}), [step]) != []


def test_a_difference_that_is_not_there_is_wrong() -> None:
    step = next(each for each in steps() if each.name == "create-array")
    changed = [each for each in differences() if step.name in each.steps]
    words: dict[str, object] = {"source": {}}
    as_connect = Answer(500, {"error_code": 500, "message": "Cannot deserialize"})
    assert any("take this out" in text for text in run(Server(lambda *_: as_connect, words), [step], changed))
    as_worker = Answer(400, {"error_code": 400, "message": "The body must be an object"})
    assert run(Server(lambda *_: as_worker, words), [step], changed) == []


def test_each_difference_is_of_a_step_and_stands_on_the_page() -> None:
    names = [each.name for each in steps()]
    page = re.sub(r"\s+", " ", PAGE.read_text())
    assert len(set(names)) == len(names)
    for each in differences():
        assert set(each.steps) <= set(names)
        assert each.reason in page
