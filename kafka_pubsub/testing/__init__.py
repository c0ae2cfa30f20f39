"""For your own tests: a clock that you move. The pytest fixtures `pubsub` and `local_kafka` come by themselves.

>>> from kafka_pubsub.testing import VirtualClock
>>> clock = VirtualClock()
>>> with PubSub.in_memory(clock=clock) as ps:
...     ps.create_topic("orders").publish(b"later", delay=30)
...     clock.advance(30)

Pytest loads `fixtures` wherever this package is installed; therefore a name of this module is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_pubsub.log.memory.clock import VirtualClock

__all__ = ["VirtualClock"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module("kafka_pubsub.log.memory.clock"), name)
    globals()[name] = value
    return value
