"""Each rule of multicast and of the delays outside of the core is needed: without it the scene that shows it fails."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.multicast import publisher as publishing
from kafka_pubsub.multicast.service import Sequencer
from tests.property import delay_service_mutations, multicast_service_mutations
from tests.property.multicast_service_mutations import Mutation
from tests.support import until
from tests.unit.multicast.wrong_brokers import Wrong

#: Seconds that a scene waits for an event that doesn't come.
PATIENCE = 6.0
MUTATIONS = [*multicast_service_mutations.MUTATIONS, *delay_service_mutations.MUTATIONS]
#: The scenes' modules, which say how long they wait.
SCENES = {inspect.getmodule(getattr(each.scene, "func", each.scene)) for each in MUTATIONS}


class _Cluster:
    """The arguments of scenes, by name, made when they are first asked for."""

    def __init__(self, ends: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self._ends, self.monkeypatch = ends, patch
        self.backend = MemoryBackend()
        self._made: dict[str, Any] = {}

    def _open(self, *, faults: Any = None) -> PubSub:
        backend = MemoryBackend(cluster=self.backend.cluster, faults=faults) if faults else self.backend
        return self._ends.enter_context(PubSub.in_memory(backend, services=False))

    def argument(self, name: str) -> Any:
        if name in ("backend", "monkeypatch"):
            return getattr(self, name)
        if name not in self._made:
            self._made[name] = getattr(self, f"_{name}")()
        return self._made[name]

    def _topics(self) -> PubSub:
        ps = self._open()
        for name in "abc":
            ps.create_topic(name, causal=True)
        return ps

    def _ps(self) -> PubSub:
        return self._open()

    def _faults(self) -> Wrong:
        return Wrong()

    def _sequencer(self) -> Sequencer:
        self.argument("topics")
        running = self._ends.enter_context(Sequencer(self._open(faults=self.argument("faults"))))
        return running.wait_until_running()

    def _running(self) -> Sequencer:
        return self._ends.enter_context(Sequencer(self.argument("topics"))).wait_until_running()

    def _publisher(self) -> Any:
        self.monkeypatch.setattr(publishing, "_LOOK", 0.2)
        topics = self.argument("topics")
        self._ends.enter_context(Sequencer(topics))
        topics.publish_multi(["a", "b"], b"0").result(60)
        return topics._cluster.multicast._publisher


def play(mutation: Mutation, patch: pytest.MonkeyPatch) -> None:
    """Plays the scene of a mutation."""
    with ExitStack() as ends:
        cluster = _Cluster(ends, patch)
        scene = inspect.signature(mutation.scene)
        wanted = [name for name, each in scene.parameters.items() if each.default is inspect.Parameter.empty]
        mutation.scene(**{name: cluster.argument(name) for name in wanted})


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.breaks.__name__)
def test_a_broken_rule_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in SCENES:
        monkeypatch.setattr(module, "PATIENCE", PATIENCE, raising=False)
    monkeypatch.setattr(until, "__defaults__", ("the condition", PATIENCE))
    mutation.breaks(monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017
        play(mutation, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.breaks.__name__)
def test_the_scene_passes_as_written(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    play(mutation, monkeypatch)


def test_each_mutation_says_what_it_breaks() -> None:
    assert all(each.breaks.__doc__ for each in MUTATIONS)
    assert len({each.breaks for each in MUTATIONS}) == len(MUTATIONS)
