"""Questions and orders of an operator to the workers, in the words of Kafka Connect: connectors, states, tasks.

Theory. A change is a record of the catalog, which every worker follows; no worker asks another one. So a change holds
on all workers and across restarts, and none is refused because of a rebalance. Tasks are the members of a unit's group,
as the broker has them: a dead one can't be shown as running.

Rules
1. Units of the workers' file can be paused, stopped, resumed and restarted. Its settings are the file's: changing
   or deleting them is a conflict.
2. A configuration is checked before it is stored, with all errors at once. It holds names of secrets, never a secret
   itself, and is shown so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from kafka_pubsub.config import ConnectorRecord
from kafka_pubsub.delays.layout import GROUP as ROUTERS
from kafka_pubsub.errors import FailedPrecondition, InvalidArgument
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.multicast.layout import GROUP as SEQUENCERS
from kafka_pubsub.worker.connectors import (
    CLASS,
    Connector,
    connector_names,
    definitions,
    load_connector,
    problems,
)
from kafka_pubsub.worker.follower import Follower
from kafka_pubsub.worker.life import Life, UnitState
from kafka_pubsub.worker.positions import move_positions, read_positions
from kafka_pubsub.worker.secrets import names_value, only_names_values
from kafka_pubsub.worker.settings import (
    NAME,
    AppSettings,
    ConnectorSettings,
    RouterSettings,
    UnitSettings,
)
from kafka_pubsub.worker.steering import State, Wanted, settings_of
from kafka_pubsub.worker.units import subscriptions_of
from kafka_pubsub.worker.worker import Worker

__all__ = ["Control", "Refused", "Task", "wrong_settings"]

#: Tries of a change that another worker's change came before.
_TRIES = 5
_STATES: Mapping[UnitState, str] = {
    UnitState.STARTING: "UNASSIGNED",
    UnitState.RUNNING: "RUNNING",
    UnitState.FAILED: "FAILED",
    UnitState.RESTARTING: "RESTARTING",
    UnitState.STOPPED: "UNASSIGNED",
}


class Refused(Exception):
    """A request that can't be done; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Task:
    """A member of a unit's group; `host`: where it runs, as the broker sees it."""

    number: int
    host: str


class Control:
    """Answers and changes, for one worker.

    `backend`: the client for catalog and groups. `address`: the worker's own, for people.
    """

    def __init__(
        self,
        follower: Follower,
        worker: Worker,
        backend: Callable[[], Backend],
        address: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._follower, self._worker, self._backend = follower, worker, backend
        self.address, self._now = address, now

    # -- answers -------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Returns the names of all units."""
        return list(self._follower.wanted())

    def find(self, name: str, missing: str = "Connector {} not found") -> Wanted:
        """Returns a unit; raises `Refused` with 404, and the text of `missing` with the name."""
        found = self._follower.wanted().get(name)
        if found is None:
            raise Refused(404, missing.format(name))
        return found

    def config(self, name: str) -> dict[str, str]:
        """Returns a unit's settings as texts, the name among them."""
        return {**_config_of(self.find(name).settings), "name": name}

    def listed(self) -> Mapping[str, bool]:
        """Returns the groups of now, which save a request for each of many units (`Admin.groups`)."""
        backend = self._backend()
        return backend.admin.groups()

    def info(self, name: str, listed: Mapping[str, bool] | None = None) -> dict[str, Any]:
        """Returns a connector as Connect shows it. `listed`: the groups of a moment ago; None: they are asked for."""
        return _info(name, self.config(name), self.tasks(name, listed))

    def status(self, name: str, listed: Mapping[str, bool] | None = None) -> dict[str, Any]:
        """Returns the state of a connector and of its tasks. `listed` is as of `info`."""
        wanted = self.find(name, "No status found for connector {}")
        life = self._worker.lives().get(name, Life())
        state = _state(wanted, life)
        connector = {"state": state, "worker_id": self.address, "version": _version()}
        if life.error and wanted.state == "running":
            connector["trace"] = life.trace or life.error
        tasks = [
            {"id": each.number, "state": "RUNNING", "worker_id": each.host, "version": _version()}
            for each in self.tasks(name, listed)
        ]
        return {"name": name, "connector": connector, "tasks": tasks, "type": "sink"}

    def tasks(self, name: str, listed: Mapping[str, bool] | None = None) -> list[Task]:
        """Returns the members of a unit's groups: an app has one for each subscription. `listed` is as of `info`."""
        return self._members(self.find(name).settings, listed)

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Returns the positions of a unit's subscriptions, with the messages behind each; none of a service."""
        return [
            {
                "partition": {"kafka_topic": each.topic, "kafka_partition": each.partition},
                "offset": {"kafka_offset": each.offset},
                "lag": each.lag,
            }
            for each in read_positions(self._backend(), subscriptions_of(self.find(name).settings))
        ]

    # -- changes -------------------------------------------------------------------------------------------------

    def create(self, name: str, config: Mapping[str, str], state: State = "running") -> dict[str, Any]:
        """Makes a connector; raises `Refused` if there is one, or the configuration is wrong."""
        config = self._checked(name, config)

        def made(known: ConnectorRecord | None) -> ConnectorRecord:
            if self._is_declared(name) or (known is not None and known.config is not None):
                raise Refused(409, f"Connector {name} already exists")
            return ConnectorRecord(name=name, config=config, state=state, created=self._now())

        self._change(name, made)
        return _info(name, config, [])

    def put(self, name: str, config: Mapping[str, str]) -> tuple[bool, dict[str, Any]]:
        """Makes a connector or changes it; returns whether it is new, and as `info` shows it."""
        config = self._checked(name, config)
        self._refuse_declared(name)
        is_new = False

        def changed(known: ConnectorRecord | None) -> ConnectorRecord:
            nonlocal is_new
            is_new = known is None or known.config is None
            if known is None or is_new:
                return ConnectorRecord(name=name, config=config, created=self._now())
            return known.model_copy(update={"config": config})

        self._change(name, changed)
        return is_new, _info(name, config, [] if is_new else self._members(settings_of(config)))

    def patch(self, name: str, changes: Mapping[str, str | None]) -> dict[str, Any]:
        """Changes some settings of a connector; None removes one."""
        self._refuse_declared(name)
        config: dict[str, str] = {}

        def merged(known: ConnectorRecord | None) -> ConnectorRecord:
            nonlocal config
            if known is None or known.config is None:
                raise _missing(name)
            together = {**known.config, **changes}
            config = self._checked(name, {key: value for key, value in together.items() if value is not None})
            return known.model_copy(update={"config": config})

        self._change(name, merged)
        return _info(name, config, self._members(settings_of(config)))

    def delete(self, name: str) -> None:
        """Removes a connector; the group keeps its positions."""
        self._refuse_declared(name)

        def removed(known: ConnectorRecord | None) -> None:
            if known is None or known.config is None:
                raise _missing(name)

        self._change(name, removed)

    def set_state(self, name: str, state: State) -> None:
        """Has every worker bring a unit to a state."""
        self._update(name, "Unknown connector {}", lambda known: {"state": state})

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        """Has every worker start a unit again; with `only_failed` those on which it has failed."""
        count = "failed_restarts" if only_failed else "restarts"
        self._update(name, "Unknown connector: {}", lambda known: {count: known.model_dump()[count] + 1})

    def alter_offsets(self, name: str, wanted: Mapping[TopicPartition, int | None] | None) -> None:
        """Moves positions of a unit that is stopped on all workers; None: to the oldest message that is left.

        `wanted`: None moves all of them there.
        """
        found = self.find(name)
        if found.state != "stopped":
            raise Refused(
                400,
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
            )
        subscriptions = subscriptions_of(found.settings)
        if not subscriptions:
            raise Refused(400, f"{name} has no subscription, so it has no positions that could be moved")
        move_positions(self._backend(), subscriptions, wanted)

    # -- parts ---------------------------------------------------------------------------------------------------

    def _members(self, settings: UnitSettings, listed: Mapping[str, bool] | None = None) -> list[Task]:
        if isinstance(settings, AppSettings | ConnectorSettings):
            groups = subscriptions_of(settings)
        else:
            groups = [ROUTERS if isinstance(settings, RouterSettings) else SEQUENCERS]
        admin = self._backend().admin
        hosts = [host for group in groups for host in sorted(admin.member_hosts(group, listed))]
        return [Task(number, host) for number, host in enumerate(hosts)]

    def _checked(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Returns a configuration without the name; raises `Refused` with each error in it."""
        wrong: list[str] = []
        if not NAME.fullmatch(name):
            wrong.append(
                f"Invalid value {name} for configuration name: 1 to 100 letters, digits, '.', '_' and '-'"
            )
        if config.get("name", name) != name:
            raise Refused(
                400,
                f"Connector name configuration ({config['name']}) doesn't match connector name in the URL ({name})",
            )
        if not config.get(CLASS):
            raise Refused(400, "Connector config contains no connector type")
        try:
            kind = load_connector(config[CLASS])
        except InvalidArgument as error:
            raise Refused(
                400, f"{error.message}; available connectors are: {', '.join(connector_names())}"
            ) from error
        rest = {key: value for key, value in config.items() if key not in ("name", "max_restarts")}
        for setting, texts in wrong_settings(kind, rest).items():
            wrong += [
                f"Invalid value {_safe(kind, setting, rest)} for configuration {setting}: {text}"
                for text in texts
            ]
        if wrong:
            raise Refused(
                400,
                f"Connector configuration is invalid and contains the following {len(wrong)} error(s):\n"
                + "\n".join(wrong)
                + "\nYou can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`",
            )
        return {key: value for key, value in config.items() if key != "name"}

    def _update(
        self, name: str, missing: str, change: Callable[[ConnectorRecord], Mapping[str, object]]
    ) -> None:
        """Changes fields of a unit's record. Only a unit of the file may have none yet."""
        declared = self._is_declared(name)

        def changed(known: ConnectorRecord | None) -> ConnectorRecord:
            if not declared and (known is None or known.config is None):
                raise Refused(404, missing.format(name))
            known = known or ConnectorRecord(name=name)
            return known.model_copy(update=dict(change(known)))

        self._change(name, changed)

    def _is_declared(self, name: str) -> bool:
        found = self._follower.wanted().get(name)
        return found is not None and found.is_declared

    def _refuse_declared(self, name: str) -> None:
        if self._is_declared(name):
            raise Refused(
                409,
                f"{name} stands in the workers' file, which is what counts: change it there, and send the workers "
                "SIGHUP; pause, stop, resume and restart work here",
            )

    def _change(self, name: str, change: Callable[[ConnectorRecord | None], ConnectorRecord | None]) -> None:
        backend = self._backend()
        catalog = backend.catalog
        for left in reversed(range(_TRIES)):
            known = catalog.connectors().get(name)
            wanted = change(known)
            try:
                if wanted is not None:
                    catalog.put_connector(wanted, known)
                elif known is not None:
                    catalog.remove_connector(known)
            except FailedPrecondition:
                if not left:
                    raise
            else:
                break
        self._follower.look()


def _missing(name: str) -> Refused:
    return Refused(404, f"Connector {name} not found")


def _info(name: str, config: Mapping[str, str], tasks: Sequence[Task]) -> dict[str, Any]:
    """Returns a connector as Connect shows it."""
    shown = [{"connector": name, "task": each.number} for each in tasks]
    return {"name": name, "config": {**config, "name": name}, "tasks": shown, "type": "sink"}


def _state(wanted: Wanted, life: Life) -> str:
    if wanted.state == "running":
        return _STATES[life.state]
    return {"paused": "PAUSED", "stopped": "STOPPED"}[wanted.state]


def _config_of(settings: UnitSettings) -> dict[str, str]:
    restarts = {} if settings.max_restarts is None else {"max_restarts": str(settings.max_restarts)}
    if isinstance(settings, ConnectorSettings):
        return {**dict(settings.config), **restarts}
    if isinstance(settings, AppSettings):
        return {CLASS: "app", "app": settings.app, **restarts}
    return {CLASS: "router" if isinstance(settings, RouterSettings) else "sequencer", **restarts}


def wrong_settings(kind: type[Connector[Any]], config: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the errors of a configuration that is to be stored: it must hold no secret itself."""
    secrets = _secrets(kind)
    known = {key: _STAND_IN if key in secrets else value for key, value in config.items()}
    wrong = problems(kind, known)
    for setting in config.keys() - secrets:
        # Only the workers' machines know its value: it is checked when the unit starts.
        if names_value(config[setting]):
            wrong.pop(setting, None)
    for setting in sorted(secrets & config.keys()):
        if not only_names_values(config[setting]):
            wrong[setting] = [
                "write ${env:NAME} or ${file:PATH}, of the workers' machines: what stands here is stored and shown"
            ]
    return wrong


def _secrets(kind: type[Connector[Any]]) -> set[str]:
    return {each.name for each in definitions(kind) if each.type == "PASSWORD"}


def _safe(kind: type[Connector[Any]], setting: str, config: Mapping[str, str]) -> str:
    return "[hidden]" if setting in _secrets(kind) else config.get(setting, "")


#: Stands for a secret when a configuration is checked without it: 32 bytes as Standard Webhooks writes them.
_STAND_IN = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


@cache
def _version() -> str:
    return version("kafka-pubsub-orderly")
