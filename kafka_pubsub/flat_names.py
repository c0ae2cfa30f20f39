"""Names of `PubSub` that became parts of `ps.delays` and `ps.multicast`: they work in this version, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from kafka_pubsub.delays.calls import Delays
from kafka_pubsub.multicast.calls import CausalTopics

__all__ = ["FlatNames", "Renamed"]

G = TypeVar("G")
P = ParamSpec("P")
R = TypeVar("R")


class Renamed(Generic[G, P, R]):
    """A method under its old name; `group`: the attribute that has it now."""

    def __init__(self, group: str, method: Callable[Concatenate[G, P], R]) -> None:
        self._group, self._method = group, method
        self.__doc__ = f"Is `{group}.{method.__name__}` now; this name warns."

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Callable[P, R]: ...

    def __get__(self, owner: object | None, kind: type) -> Self | Callable[P, R]:
        if owner is None:
            return self
        new = f"{self._group}.{self._method.__name__}"
        text = f"PubSub.{self._name} is PubSub.{new} now, and goes with the next version"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return partial(self._method, getattr(owner, self._group))


class FlatNames:
    """The old names."""

    delayed_messages = Renamed("delays", Delays.waiting)
    cancel_delayed = Renamed("delays", Delays.cancel)
    delay_dead_letters = Renamed("delays", Delays.dead_letters)
    replay_delay_dead_letters = Renamed("delays", Delays.replay)
    purge_delay_dead_letters = Renamed("delays", Delays.purge)
    delay_routers = Renamed("delays", Delays.routers)
    multicast_status = Renamed("multicast", CausalTopics.status)
    multicast_dead_letters = Renamed("multicast", CausalTopics.dead_letters)
    replay_multicast_dead_letters = Renamed("multicast", CausalTopics.replay)
    purge_multicast_dead_letters = Renamed("multicast", CausalTopics.purge)
    sequencers = Renamed("multicast", CausalTopics.sequencers)
