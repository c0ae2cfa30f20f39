"""Rules of steering, each taken out; the machine of `followed.py` must notice each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pytest

from kafka_pubsub.config import ConnectorRecord
from kafka_pubsub.worker import follower, steering
from kafka_pubsub.worker.control import Control
from kafka_pubsub.worker.settings import UnitSettings
from kafka_pubsub.worker.steering import Wanted

__all__ = ["MUTATIONS", "Patch"]

Patch = pytest.MonkeyPatch
File: TypeAlias = Mapping[str, UnitSettings]
Records: TypeAlias = Mapping[str, ConnectorRecord]


def the_catalog_wins(patch: Patch) -> None:
    """A connector of the catalog has its own settings though the file has others."""
    merge = steering.merge

    def merged(file: File, records: Records) -> dict[str, Wanted]:
        stored = {name: each for name, each in records.items() if each.config is not None}
        return {**merge(file, records), **merge({}, stored)}

    patch.setattr(follower, "merge", merged)


def states_of_the_file_are_its_own(patch: Patch) -> None:
    """A unit of the file runs though it was paused."""
    merge = steering.merge
    patch.setattr(
        follower,
        "merge",
        lambda file, records: merge(file, {k: v for k, v in records.items() if k not in file}),
    )


def a_record_without_settings_is_a_connector(patch: Patch) -> None:
    """The record of a unit that left the file makes a connector."""
    merge = steering.merge

    def merged(file: File, records: Records) -> dict[str, Wanted]:
        whole = {
            name: each if each.config is not None else each.model_copy(update={"config": {}})
            for name, each in records.items()
        }
        return merge(file, whole)

    patch.setattr(follower, "merge", merged)


def the_view_decides_what_exists(patch: Patch) -> None:
    """Whether a name is free is looked up in the view of a moment ago."""

    def create(self: Control, name: str, config: Mapping[str, str], state: str = "running") -> None:
        if name not in self._follower.wanted():
            self._change(
                name,
                lambda _: ConnectorRecord(name=name, config=dict(config), state=state),  # type: ignore[arg-type]
            )

    patch.setattr(Control, "create", create)


def restarts_of_the_failed_concern_all(patch: Patch) -> None:
    """A restart of those that have failed restarts all."""
    restart = Control.restart
    patch.setattr(Control, "restart", lambda self, name, only_failed=False: restart(self, name))


MUTATIONS: list[Callable[[Patch], None]] = [
    the_catalog_wins,
    states_of_the_file_are_its_own,
    a_record_without_settings_is_a_connector,
    the_view_decides_what_exists,
    restarts_of_the_failed_concern_all,
]
