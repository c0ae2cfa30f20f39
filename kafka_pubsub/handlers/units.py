"""An app as a unit that a process runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafka_pubsub.counters import PARTS, Reading
from kafka_pubsub.services.lifecycle import ServiceState

if TYPE_CHECKING:
    from kafka_pubsub.handlers.life import Life
    from kafka_pubsub.subscribe.stream.stream import Stream

__all__ = ["AppHealth", "AppUnit"]


@dataclass(frozen=True)
class AppHealth:
    """How an app is. `ok`: each of its streams is a member of its group, and none has failed.

    `streams`: for each subscription what is wrong with its stream; empty: it receives.
    """

    state: ServiceState
    error: str = ""
    streams: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing needs to be looked at."""
        return self.state is ServiceState.RUNNING and not self.error


class RunnableApp(Protocol):
    """An app, as its unit uses it."""

    @property
    def life(self) -> Life | None:
        """What runs; None: it isn't started."""

    def start(self) -> object:
        """Starts the handlers."""

    def stop(self, grace: float | None) -> bool:
        """Lets handlers end, and closes what was opened; returns whether all have ended."""


class AppUnit:
    """Runs an app. `label`: how its figures name it, and its errors if it isn't the only app."""

    def __init__(self, app: RunnableApp, label: str = "app") -> None:
        self.name = "the app" if label == "app" else label
        self._label = label
        self._app = app
        self._state = ServiceState.NEW
        #: Why a stream has failed, when the app was stopped for that.
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Starts the app's handlers."""
        self._state = ServiceState.STARTING
        PARTS.add(self)
        self._app.start()
        self._state = ServiceState.RUNNING

    def drain(self) -> None:
        """Takes nothing more."""
        life = self._app.life
        if life is not None:
            self._state = ServiceState.DRAINING
            life.drain()

    def stop(self, timeout: float = 30.0) -> bool:
        """Lets handlers end for up to `timeout` seconds, and closes what the app opened."""
        life = self._app.life
        if life is not None and life.failed.is_set():
            self.failure = next(filter(None, map(_error, life.streams.values())), None)
        ended = self._app.stop(timeout)
        self._state = ServiceState.STOPPED
        return ended

    def readings(self) -> Iterator[Reading]:
        """Returns whether it does its work, for `kafka_pubsub.observe`."""
        yield Reading({"unit": self._label}, {}, {"up": float(self.health().ok)})

    def health(self) -> AppHealth:
        """Returns how the app is now."""
        life = self._app.life
        if life is None or self._state is not ServiceState.RUNNING:
            return AppHealth(self._state)
        streams = {name: _problem(stream) for name, stream in life.streams.items()}
        error = "; ".join(f"subscription {name!r}: {text}" for name, text in streams.items() if text)
        state = ServiceState.STOPPED if life.failed.is_set() else ServiceState.RUNNING
        return AppHealth(state, error, streams)


def _error(stream: Stream) -> BaseException | None:
    return stream.exception(0) if stream.done() else None


def _problem(stream: Stream) -> str:
    if stream.done():
        return str(stream.exception(0) or "its stream has ended")
    return "" if stream.joined else "it isn't a member of its group yet"
