"""A command line over an in-memory cluster that all commands of a test share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result

from kafka_pubsub.app import PubSub
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.main import cli
from kafka_pubsub.local import Status
from kafka_pubsub.log.memory import MemoryBackend


@dataclass
class CommandLine:
    """Runs commands, each with a client of its own beside `pubsub`; `status` is the answer of `kafka-pubsub status`."""

    pubsub: PubSub
    address: str | None = "memory"
    #: Whether commands use `pubsub` itself, because a test has replaced a part of the client.
    shares: bool = False
    #: Where the schemas lie, as the environment would say it.
    schemas: str | None = None
    status: Status = field(default_factory=lambda: Status("running", "memory"))

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        session = Session(
            open_pubsub=lambda *_: self._open(),
            find_running=lambda: self.address,
            local_status=lambda: self.status,
        )
        return CliRunner().invoke(cli, list(arguments), input=stdin, obj=session)

    def _open(self) -> AbstractContextManager[PubSub]:
        if self.shares:
            return nullcontext(self.pubsub)
        backend = self.pubsub._cluster.backend
        assert isinstance(backend, MemoryBackend)
        again = MemoryBackend(cluster=backend.cluster)
        return PubSub.in_memory(again, schemas=self.schemas, services=False)

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> object:
        """The answer of a command that must succeed."""
        result = self(*arguments, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def error(self, *arguments: str, stdin: str | bytes | None = None) -> dict[str, object]:
        """The error of a command that must fail, and leave stdout empty."""
        result = self(*arguments, "--json", stdin=stdin)
        assert result.exit_code != 0, result.output
        assert result.stdout == ""
        error = json.loads(result.stderr)["error"]
        assert isinstance(error, dict)
        return {"exit_code": result.exit_code, **error}


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_PUBSUB_BOOTSTRAP", "KAFKA_PUBSUB_CONFIG", "KAFKA_PUBSUB_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run() -> Iterator[CommandLine]:
    with PubSub.in_memory(services=False) as pubsub:
        yield CommandLine(pubsub)
