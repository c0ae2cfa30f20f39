"""A user's view: every public name exists, has a docstring, and costs nothing until it is used."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import kafka_pubsub
from tests.unit.house.repository import ROOT

PUBLIC = tuple(kafka_pubsub.__all__)

PROMISED = {
    "AckError",
    "AlreadyExists",
    "Batching",
    "BrokerUnavailable",
    "FailedPrecondition",
    "FlowControl",
    "InvalidArgument",
    "InvariantViolated",
    "Message",
    "NotFound",
    "OrderingKeyPaused",
    "PubSub",
    "PubSubError",
    "PublishError",
    "PublishFlow",
    "RetryPolicy",
    "SchemaError",
    "StaleAck",
    "Stream",
    "Subscription",
    "Topic",
    "UnknownAck",
}


def test_the_package_exports_what_was_promised() -> None:
    assert PROMISED - set(PUBLIC) == set()
    assert list(PUBLIC) == sorted(PUBLIC)
    assert set(PUBLIC) - set(dir(kafka_pubsub)) == set()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    thing = getattr(kafka_pubsub, name)
    if not (inspect.isclass(thing) or callable(thing)):
        return
    silent = [f"{name}.{part}" for part in _own_methods(thing) if not inspect.getdoc(getattr(thing, part))]
    assert thing.__doc__, f"{name} has no docstring"
    assert silent == []


def test_an_unknown_name_gives_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        importlib.import_module("kafka_pubsub").nothing_of_that_name  # noqa: B018


@pytest.mark.parametrize("name", ["InvalidArgument", "Message"])
def test_a_light_name_loads_no_librdkafka(name: str) -> None:
    program = f"import sys; from kafka_pubsub import {name}; print('confluent_kafka' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout.strip() == "False"


def _own_methods(thing: object) -> list[str]:
    """Public functions and properties that a class of ours defines, without inherited ones."""
    if not inspect.isclass(thing):
        return []
    ours = [base for base in thing.__mro__ if base.__module__.partition(".")[0] == "kafka_pubsub"]
    kinds = (property, classmethod, staticmethod)
    return sorted(
        {
            name
            for base in ours
            for name, member in vars(base).items()
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, kinds))
        }
    )
