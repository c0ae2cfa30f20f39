"""Connectors are found by entry points, and name each wrong setting."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker import connectors
from kafka_pubsub.worker.connectors import (
    CLASS,
    GROUP,
    connector_names,
    definitions,
    load_connector,
    make_connector,
    problems,
)
from kafka_pubsub.worker.push.connector import Push

GOOD = {CLASS: "push", "subscription": "hook", "topic": "orders", "url": "https://example.com/hook"}


def test_push_is_installed() -> None:
    assert "push" in connector_names()
    assert load_connector("push") is Push


@pytest.mark.parametrize("name", ["", "pusher", "os.path:join", "kafka_pubsub.worker.push.connector:Push"])
def test_a_class_that_is_not_an_entry_point_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"connector\.class: there is no connector .*'?push"):
        load_connector(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("no_such_module:X", "doesn't import"),
        ("json:dumps", "is no class made from"),
        ("json:X", "doesn't import"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, text: str
) -> None:
    monkeypatch.setattr(connectors, "entry_points", lambda group: [EntryPoint("mine", value, group)])
    with pytest.raises(InvalidArgument, match=text):
        load_connector("mine")


def test_a_good_configuration_makes_a_connector_with_values_of_their_types() -> None:
    made = make_connector(
        {**GOOD, "name": "x", "tasks.max": "1", "timeout": "2.5", "dead_letter_on": "400, 422"}
    )
    assert isinstance(made, Push)
    assert (made.options.timeout, made.options.dead_letter_on) == (2.5, (400, 422))
    assert made.options.allow_private is False


def test_each_wrong_setting_is_named_at_once() -> None:
    config = {CLASS: "push", "subscription": "hook", "ulr": "x", "timeout": "soon", "format": "xml"}
    found = problems(Push, config)
    assert sorted(found) == ["format", "timeout", "topic", "ulr", "url"]
    assert "did you mean 'url'" in found["ulr"][0]
    with pytest.raises(InvalidArgument, match=r"timeout: .*; "):
        make_connector(config)


def test_settings_that_contradict_each_other_are_named() -> None:
    config = {**GOOD, "token": "a", "token_file": "b"}
    assert problems(Push, config) == {
        CLASS: ["token and token_file are two ways for one thing: give one of them"]
    }


def test_no_secret_is_in_an_error_or_a_repr() -> None:
    config = {**GOOD, "secret": "correct-horse-battery", "token": "hunter2hunter2"}
    assert "correct-horse" not in str(problems(Push, config))
    made = make_connector({**GOOD, "token": "hunter2hunter2"})
    assert "hunter2" not in repr(made.options)


def test_each_setting_is_described() -> None:
    found = {each.name: each for each in definitions(Push)}
    assert all(each.documentation.endswith(".") for each in found.values())
    assert found["url"].required
    assert (found["dead_letter_on"].type, found["dead_letter_on"].default) == ("LIST", "")
    assert found["secret"].type == "PASSWORD"
    assert found["format"].values == ("cloudevents", "google")
    assert GROUP == "kafka_pubsub.connectors"


@pytest.mark.parametrize("tasks", ["0", "none", "", "-1", "1.5"])
def test_tasks_max_is_checked_though_it_means_nothing(tasks: str) -> None:
    kind = load_connector("push")
    config = {"subscription": "s", "topic": "t", "url": "https://endpoint.example/"}
    assert problems(kind, {**config, "tasks.max": "3"}) == {}
    assert list(problems(kind, {**config, "tasks.max": tasks})) == ["tasks.max"]
