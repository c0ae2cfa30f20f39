"""Makes a unit from its settings, with a client of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.services.units import Unit, UnitHealth
from kafka_pubsub.worker.settings import AppSettings, ConnectorSettings, RouterSettings, UnitSettings

if TYPE_CHECKING:
    from kafka_pubsub.app import PubSub
    from kafka_pubsub.services.lifecycle import Service

__all__ = ["OpenPubSub", "make_unit", "subscriptions_of"]

OpenPubSub = Callable[[], "AbstractContextManager[PubSub]"]


def make_unit(name: str, settings: UnitSettings, open_pubsub: OpenPubSub) -> Unit:
    """Returns a new unit; raises `InvalidArgument` if there is no such app. `open_pubsub` gives a service its client.

    An app makes its own client, as its module says.
    """
    if isinstance(settings, AppSettings):
        from kafka_pubsub.handlers.loading import load_app
        from kafka_pubsub.handlers.units import AppUnit

        app = load_app(settings.app)
        app.check()
        return AppUnit(app, name)
    if isinstance(settings, ConnectorSettings):
        from kafka_pubsub.worker.connector_unit import ConnectorUnit

        return ConnectorUnit(name, settings, open_pubsub)
    return ServiceUnit(name, settings, open_pubsub)


def subscriptions_of(settings: UnitSettings) -> list[str]:
    """Returns the names of a unit's subscriptions; none if it can't be made, or is a service."""
    try:
        if isinstance(settings, AppSettings):
            from kafka_pubsub.handlers.loading import load_app

            return load_app(settings.app).subscriptions
        if isinstance(settings, ConnectorSettings):
            from kafka_pubsub.worker.secrets import resolve

            name = dict(settings.config).get("subscription", "")
            return [resolve({"subscription": name})["subscription"]] if name else []
    except InvalidArgument:  # its state says so
        return []
    return []


class ServiceUnit:
    """A service and its client."""

    def __init__(self, name: str, settings: UnitSettings, open_pubsub: OpenPubSub) -> None:
        self.name = name
        self._settings, self._open_pubsub = settings, open_pubsub
        self._opened = ExitStack()
        self._service: Service | None = None

    def start(self) -> None:
        """Opens the client, and starts the service."""
        pubsub = self._opened.enter_context(self._open_pubsub())
        self._service = _make_service(self._settings, pubsub)
        self._service.start()

    def drain(self) -> None:
        """Takes nothing more."""
        if self._service is not None:
            self._service.drain()

    def stop(self, timeout: float = 30.0) -> bool:
        """Drains, waits for the end, and closes the client."""
        with self._opened:
            return self._service is None or self._service.stop(timeout)

    def health(self) -> UnitHealth:
        """Returns how the service is; call it after `start`."""
        assert self._service is not None
        return self._service.health()


def _make_service(settings: UnitSettings, pubsub: PubSub) -> Service:
    if isinstance(settings, RouterSettings):
        from kafka_pubsub.delays.service import DelayRouter

        return DelayRouter(
            pubsub,
            tiers=settings.tiers,
            partitions=settings.partitions,
            begin_again=settings.begin_again,
        )
    from kafka_pubsub.multicast.service import Sequencer

    return Sequencer(pubsub)
