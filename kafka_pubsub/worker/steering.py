"""The units that every worker runs, and their states, by the file and by the catalog. Values only.

Rules
1. A unit of the file has the file's settings, whatever the catalog says; its state and its restarts are the catalog's.
2. A connector that stands in no file is the catalog's. A record without settings, of a unit that stands in no file,
   counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kafka_pubsub.config import ConnectorRecord
from kafka_pubsub.worker.settings import ConnectorSettings, UnitSettings
from kafka_pubsub.worker.worker import NO_RESTARTS, Restarts

__all__ = ["Wanted", "merge", "settings_of"]

State = Literal["running", "paused", "stopped"]


@dataclass(frozen=True)
class Wanted:
    """A unit, and its state. When `restarts` changes, it starts again. `is_declared`: it stands in the file."""

    settings: UnitSettings
    state: State = "running"
    restarts: Restarts = NO_RESTARTS
    is_declared: bool = False


def merge(file: Mapping[str, UnitSettings], records: Mapping[str, ConnectorRecord]) -> dict[str, Wanted]:
    """Returns all units by name."""
    wanted: dict[str, Wanted] = {}
    for name, record in records.items():
        if name not in file and record.config is not None:
            wanted[name] = Wanted(settings_of(record.config), record.state, _restarts(record))
    for name, settings in file.items():
        known = records.get(name)
        state: State = "running" if known is None else known.state
        restarts = NO_RESTARTS if known is None else _restarts(known)
        wanted[name] = Wanted(settings, state, restarts, is_declared=True)
    return dict(sorted(wanted.items()))


def _restarts(record: ConnectorRecord) -> Restarts:
    return Restarts(record.restarts, record.failed_restarts)


def settings_of(config: Mapping[str, str]) -> ConnectorSettings:
    """Returns a connector's settings; `max_restarts` among them is the unit's."""
    rest = {name: value for name, value in config.items() if name != "max_restarts"}
    most = config.get("max_restarts", "")
    restarts = int(most) if most.isascii() and most.isdigit() else None
    return ConnectorSettings(config=tuple(sorted(rest.items())), max_restarts=restarts)
