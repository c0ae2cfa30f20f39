"""Workers over one catalog in memory, driven step by step, and the naive account of the units that each must run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_pubsub import PubSub
from kafka_pubsub.worker.control import Control, Refused
from kafka_pubsub.worker.follower import Follower
from kafka_pubsub.worker.life import Life, UnitState
from kafka_pubsub.worker.settings import ConnectorSettings, UnitSettings
from kafka_pubsub.worker.steering import State
from kafka_pubsub.worker.worker import NO_RESTARTS, Restarts, Worker

__all__ = ["Following", "ToldWorker"]

NAMES = ("a", "b", "c")
COUNT = 3


def config(url: int) -> dict[str, str]:
    return {
        "connector.class": "push",
        "subscription": "s",
        "topic": "t",
        "url": f"https://endpoint.invalid/{url}",
    }


def settings_for(url: int) -> ConnectorSettings:
    return ConnectorSettings(config=tuple(sorted(config(url).items())))


class ToldWorker(Worker):
    """A worker that notes its units, and runs nothing."""

    def __init__(self) -> None:
        super().__init__(lambda name, settings: None, grace=1)  # type: ignore[arg-type,return-value]
        self.told: Mapping[str, UnitSettings] = {}
        self.restarts: Mapping[str, Restarts] = {}
        self.failed = frozenset[str]()

    def follow(
        self,
        wanted: Mapping[str, UnitSettings],
        restarts: Mapping[str, Restarts] = MappingProxyType({}),
        *,
        revive: bool = True,
    ) -> None:
        self.told, self.restarts = wanted, restarts

    def lives(self) -> dict[str, Life]:
        return {name: Life(UnitState.FAILED) for name in self.failed}


class Following(RuleBasedStateMachine):
    """Orders at any worker, looks at any time: after a look a worker runs what the last orders say."""

    def __init__(self) -> None:
        super().__init__()
        self.ps = PubSub.in_memory()
        backend = self.ps._cluster.backend
        self.workers = [ToldWorker() for _ in range(COUNT)]
        self.followers = [Follower(worker, backend.catalog.connectors) for worker in self.workers]
        self.controls = [
            Control(follower, worker, lambda: backend, "here", time.time)
            for follower, worker in zip(self.followers, self.workers, strict=True)
        ]
        #: The account: the file, the connectors made by REST, and the states and restarts of all.
        self.file: dict[str, int] = {}
        self.made: dict[str, int] = {}
        self.states: dict[str, State] = {}
        self.asked: dict[str, Restarts] = {}

    def teardown(self) -> None:
        try:
            for at in range(COUNT):
                self.look(at)
        finally:
            self.ps.close()

    # -- the naive account -----------------------------------------------------------------------------------

    def units(self) -> dict[str, int]:
        return {**self.made, **self.file}

    def running(self) -> dict[str, UnitSettings]:
        return {
            name: settings_for(url)
            for name, url in self.units().items()
            if self.states.get(name, "running") == "running"
        }

    # -- rules -----------------------------------------------------------------------------------------------

    workers_ = st.integers(0, COUNT - 1)
    names_ = st.sampled_from(NAMES)

    @rule(at=workers_, name=names_, url=st.integers(0, 3), state=st.sampled_from(["running", "stopped"]))
    def create(self, at: int, name: str, url: int, state: State) -> None:
        refused = self.order(lambda control: control.create(name, config(url), state), at)
        assert (refused == 409) is (name in self.units()), "made over another one, or a free name was refused"
        if refused is None:
            self.made[name], self.states[name], self.asked[name] = url, state, NO_RESTARTS

    @rule(at=workers_, name=names_, url=st.integers(0, 3))
    def put(self, at: int, name: str, url: int) -> None:
        refused = self.order(lambda control: control.put(name, config(url)), at)
        assert (refused == 409) is (name in self.file)
        if refused is None:
            if name not in self.made:
                self.states[name], self.asked[name] = "running", NO_RESTARTS
            self.made[name] = url

    @rule(at=workers_, name=names_)
    def delete(self, at: int, name: str) -> None:
        refused = self.order(lambda control: control.delete(name), at)
        wanted = 409 if name in self.file else None if name in self.made else 404
        assert refused == wanted
        if refused is None:
            del self.made[name]
            self.states.pop(name, None), self.asked.pop(name, None)

    @rule(at=workers_, name=names_, state=st.sampled_from(["running", "paused", "stopped"]))
    def set_state(self, at: int, name: str, state: State) -> None:
        refused = self.order(lambda control: control.set_state(name, state), at)
        assert (refused == 404) is (name not in self.units())
        if refused is None:
            self.states[name] = state

    @rule(at=workers_, name=names_, only_failed=st.booleans())
    def restart(self, at: int, name: str, only_failed: bool) -> None:
        refused = self.order(lambda control: control.restart(name, only_failed=only_failed), at)
        assert (refused == 404) is (name not in self.units())
        if refused is None:
            before = self.asked.get(name, NO_RESTARTS)
            self.asked[name] = Restarts(before.always + (not only_failed), before.failed + only_failed)

    @rule(file=st.dictionaries(names_, st.integers(4, 6)))
    def change_file(self, file: dict[str, int]) -> None:
        """All workers get the new file. Only the catalog's part is followed late."""
        self.file = file
        for follower in self.followers:
            follower.read_file({name: settings_for(url) for name, url in file.items()})

    @rule(at=workers_)
    def look(self, at: int) -> None:
        self.followers[at].look()
        self.check(at)

    @invariant()
    def the_file_is_followed_at_once(self) -> None:
        for worker in self.workers:
            for name, settings in worker.told.items():
                assert name not in self.file or settings == settings_for(self.file[name]), "not the file's"

    def order(self, change: object, at: int) -> int | None:
        """Gives an order to one worker, which follows it at once; returns the status of its refusal."""
        try:
            change(self.controls[at])  # type: ignore[operator]
        except Refused as error:
            return error.status
        return None

    def check(self, at: int) -> None:
        told = self.workers[at]
        assert told.told == self.running(), "another unit runs than the last orders say"
        for name in self.units():
            assert told.restarts.get(name, NO_RESTARTS) == self.asked.get(name, NO_RESTARTS)
