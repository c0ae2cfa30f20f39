"""A connector as a unit: an app that the connector's class declares, and a client of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_pubsub.handlers.app import App
from kafka_pubsub.handlers.units import AppUnit
from kafka_pubsub.services.lifecycle import ServiceState
from kafka_pubsub.worker.connectors import make_connector
from kafka_pubsub.worker.secrets import resolve
from kafka_pubsub.worker.settings import ConnectorSettings

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub

__all__ = ["ConnectorUnit"]


@dataclass(frozen=True)
class ConnectorHealth:
    """How a connector is. Its endpoint may be away (`error`) while it does all that it can (`ok`)."""

    state: ServiceState
    error: str
    ok: bool


class ConnectorUnit:
    """A connector and its client."""

    def __init__(
        self,
        name: str,
        settings: ConnectorSettings,
        open_pubsub: Callable[[], AbstractContextManager[PubSub]],
    ) -> None:
        self.name = name
        self._connector = make_connector(resolve(dict(settings.config)))
        self._open_pubsub = open_pubsub
        self._opened = ExitStack()
        self._unit: AppUnit | None = None

    def start(self) -> None:
        """Opens the client, and starts the handlers."""
        app = App(pubsub=self._opened.enter_context(self._open_pubsub()))
        self._connector.declare(app)
        app.check()
        self._unit = AppUnit(app, self.name)
        self._unit.start()

    def drain(self) -> None:
        """Takes nothing more."""
        if self._unit is not None:
            self._unit.drain()

    def stop(self, timeout: float = 30.0) -> bool:
        """Drains, waits for the end, and closes the client."""
        with self._opened:
            return self._unit is None or self._unit.stop(timeout)

    def health(self) -> ConnectorHealth:
        """Returns how it is; call it after `start`."""
        assert self._unit is not None
        health = self._unit.health()
        return ConnectorHealth(health.state, health.error or self._connector.problem(), health.ok)
