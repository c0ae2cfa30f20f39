"""The faults by name. Each is a burst that is done again and again until the round's time is over.

Rules
1. A burst heals what it broke before it returns, whatever happens in it.
2. It says what it does to the driver's history before it does it.
3. Poison is no burst: it comes with the messages (`Fault.poison`), and the crew only has to be revived.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_pubsub.local import LocalCluster
from kafka_pubsub.observe.history import HistoryFile
from tests.faults.arena import Arena
from tests.faults.crew import Crew
from tests.faults.plan import Poison
from tests.faults.proxy import Direction, Proxy

__all__ = ["FAULTS", "Fault", "NotBuilt", "Stage"]

#: Seconds after which the group misses a member: the library's session time-out.
SESSION = 6.0
#: Slots of consumers that come and go beside the regular ones begin here.
GUESTS = 100
#: Seconds that a guest may take to come to work.
GUEST_PATIENCE = 60
CUTS: tuple[tuple[Direction, ...], ...] = (("to_broker", "to_client"), ("to_broker",), ("to_client",))


class NotBuilt(Exception):
    """The round needs something that doesn't exist yet."""


@dataclass
class Stage:
    """What a burst acts on."""

    arena: Arena
    crew: Crew
    driver: HistoryFile
    until: float
    #: Bursts done, by name.
    done: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the round's time is over."""
        return time.monotonic() >= self.until

    def wait(self, seconds: float) -> None:
        """Waits, and revives consumers that have died."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))
            self.crew.revive()

    @property
    def cluster(self) -> LocalCluster:
        """The cluster; only rounds that have one have bursts that ask for it."""
        assert self.arena.cluster is not None
        return self.arena.cluster

    @contextmanager
    def trouble(self, name: str) -> Iterator[None]:
        """From here to the end of the block consumers may not hear from the log."""
        self.driver.fault(name, self.crew.pids)
        try:
            yield
        finally:
            self.driver.mend(name)


Burst = Callable[[Stage, random.Random], None]


@dataclass(frozen=True)
class Fault:
    """What a name on the command line stands for; bursts of different `bursts` go on at the same time."""

    summary: str
    bursts: tuple[tuple[Burst, ...], ...] = ()
    #: It breaks brokers, so it needs a cluster.
    cluster: bool = False
    #: Clients go through the proxies.
    detour: bool = False
    poison: Poison | None = None
    #: Per cent of handlers that take up to a second and a half.
    slow_percent: float = 0.0
    #: Why it can't be done yet.
    missing: str | None = None

    def run(self, stage: Stage, seed: int) -> None:
        """Bursts until the round's time is over; raises what went wrong in them."""
        if self.missing is not None:
            raise NotBuilt(self.missing)
        errors: list[BaseException] = []

        def act(number: int, bursts: tuple[Burst, ...]) -> None:
            rng = random.Random(f"{seed}/{number}")
            try:
                while not stage.over:
                    burst = rng.choice(bursts)
                    stage.done.append(burst.__name__)
                    burst(stage, rng)
                    stage.wait(rng.uniform(0.2, 2.0))
            except BaseException as error:
                errors.append(error)
                stage.until = 0

        lines = [
            threading.Thread(target=act, args=(number, bursts), name=f"bursts-{number}")
            for number, bursts in enumerate(self.bursts)
        ]
        for line in lines:
            line.start()
        while any(line.is_alive() for line in lines) or not stage.over:
            stage.wait(0.1)
        if errors:
            raise errors[0]


def kill_consumer(stage: Stage, rng: random.Random) -> None:
    slot = rng.choice(stage.crew.slots)
    stage.crew.kill(slot)
    stage.wait(rng.uniform(0, 3))
    stage.crew.start(slot)
    stage.wait(rng.uniform(1, 5))


def stop_consumer(stage: Stage, rng: random.Random) -> None:
    slot = rng.choice(stage.crew.slots)
    stage.crew.freeze(slot)
    try:
        stage.wait(SESSION + rng.uniform(1, 3))
    finally:
        stage.crew.thaw(slot)


def rejoin(stage: Stage, rng: random.Random) -> None:
    """A guest comes and goes: everything is revoked, most of it comes back, and slow handlers run meanwhile."""
    guest = GUESTS + len(stage.done)
    stage.crew.start(guest)
    try:
        for _ in range(100 * GUEST_PATIENCE):
            if stage.crew.begun(guest):
                break
            stage.wait(0.01)
        stage.wait(rng.uniform(1, 4))
    finally:
        if guest in stage.crew.slots:
            stage.crew.retire(guest)


def rolling_restart(stage: Stage, rng: random.Random) -> None:
    with stage.trouble("rolling-restart"):
        stage.cluster.rolling_restart()


def kill_broker(stage: Stage, rng: random.Random) -> None:
    node = rng.choice(stage.cluster.nodes)
    with stage.trouble("kill-broker"):
        stage.cluster.kill(node)
        try:
            stage.wait(rng.uniform(0.5, 4))
        finally:
            stage.cluster.start(node)
        stage.cluster.wait_in_sync()


def slow_broker(stage: Stage, rng: random.Random) -> None:
    proxy = _some_proxy(stage, rng)
    with (
        stage.trouble("slow-broker"),
        proxy.trouble(delay=rng.uniform(0.02, 0.4), rate=rng.uniform(20_000, 400_000)),
    ):
        stage.wait(rng.uniform(2, 6))


def partition(stage: Stage, rng: random.Random) -> None:
    proxy = _some_proxy(stage, rng)
    with stage.trouble("partition"), proxy.trouble(cut=frozenset(rng.choice(CUTS))):
        stage.wait(rng.uniform(1, 9))
        if rng.random() < 0.5:
            # As when a router forgets its connections: what was kept back is lost with them.
            proxy.reset()


def _some_proxy(stage: Stage, rng: random.Random) -> Proxy:
    return rng.choice(stage.arena.proxies)


FAULTS: Mapping[str, Fault] = {
    "kill-consumer": Fault("kill -9 of consumers, started again", ((kill_consumer,),)),
    "stop-consumer": Fault("SIGSTOP of consumers beyond their session, then SIGCONT", ((stop_consumer,),)),
    "rejoin": Fault(
        "revoke and assign to the same owners, with slow handlers running", ((rejoin,),), slow_percent=3
    ),
    "rolling-restart": Fault("brokers stopped and started in turn", ((rolling_restart,),), cluster=True),
    "kill-broker": Fault("kill -9 of brokers, started again", ((kill_broker,),), cluster=True),
    "slow-broker": Fault("a broker far away, on a thin line", ((slow_broker,),), cluster=True, detour=True),
    "partition": Fault(
        "a broker that clients can't hear, can't talk to, or both", ((partition,),), cluster=True, detour=True
    ),
    "poison-raises": Fault("messages whose handler raises", poison="raises"),
    "poison-hangs": Fault("messages whose handler hangs beyond its lease", poison="hangs"),
    "poison-kills": Fault("messages that kill their process", poison="kills"),
    "retry-unwritable": Fault(
        "the retry topic takes no writes",
        missing="retry-unwritable needs a subscription's retry topic, and there is none yet",
    ),
    "dead-letter-unwritable": Fault(
        "the dead-letter topic takes no writes",
        missing="dead-letter-unwritable needs dead-letter topics, and there are none yet",
    ),
    "mixed": Fault(
        "everything at once: consumers, brokers and network, at random",
        ((kill_consumer, stop_consumer, rejoin), (rolling_restart, kill_broker, slow_broker, partition)),
        cluster=True,
        detour=True,
        poison="raises",
        slow_percent=1,
    ),
}
