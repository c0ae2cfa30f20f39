"""Names of `PubSub` that became parts of `ps.delays` and `ps.multicast`: they work in this version, and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Self, overload

__all__ = ["GOES_WITH", "FlatNames"]

#: The version without these names (docs/compatibility.md).
GOES_WITH = "0.2.0"


class Renamed:
    """A method under its old name; `new`: the group that has it now, and its name there."""

    def __init__(self, new: str) -> None:
        self._new = new
        self.__doc__ = f"Is `{new}` now; this name warns."

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Callable[..., Any]: ...

    def __get__(self, owner: object | None, kind: type) -> Self | Callable[..., Any]:
        if owner is None:
            return self
        text = f"PubSub.{self._name} is PubSub.{self._new} now, and goes with version {GOES_WITH}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        method: Callable[..., Any] = attrgetter(self._new)(owner)
        return method


class FlatNames:
    """The old names, of `kafka_pubsub.PubSub` and of that of `kafka_pubsub.aio`."""

    delayed_messages = Renamed("delays.waiting")
    cancel_delayed = Renamed("delays.cancel")
    delay_dead_letters = Renamed("delays.dead_letters")
    replay_delay_dead_letters = Renamed("delays.replay")
    purge_delay_dead_letters = Renamed("delays.purge")
    delay_routers = Renamed("delays.routers")
    multicast_status = Renamed("multicast.status")
    multicast_dead_letters = Renamed("multicast.dead_letters")
    replay_multicast_dead_letters = Renamed("multicast.replay")
    purge_multicast_dead_letters = Renamed("multicast.purge")
    sequencers = Renamed("multicast.sequencers")
