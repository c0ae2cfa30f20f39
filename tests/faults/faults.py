"""The faults by name. Each is a burst that is done again and again until the round's time is over.

Rules
1. A burst heals what it broke before it returns, whatever happens in it.
2. It says what it does to the driver's history before it does it.
3. Poison is no burst: it comes with the messages (`Fault.poison`), and dead processes are started again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.log.kafka.admin import KafkaAdmin
from kafka_pubsub.log.kafka.backend import KafkaBackend
from tests.faults.arena import Arena, Brokers
from tests.faults.children import Children
from tests.faults.plan import Poison
from tests.faults.proxy import Direction, Proxy
from tests.faults.services import Services

__all__ = ["FAULTS", "Fault", "Stage"]

#: Seconds after which the group misses a member: the library's session time-out.
SESSION = 6.0
#: Seconds until a consumer that is to die in a transaction has surely had one, if transactions are possible at all.
TRANSACTION_PATIENCE = 30.0
#: Seconds for a change of a topic's settings, an election included.
CONFIG_PATIENCE = 30.0
#: Bytes of a batch that a topic still takes when it is to take no messages: those of ours are larger, and a marker of
#: a transaction's end (78) isn't. A broker whose marker is refused leaves that transaction open for ever.
NEXT_TO_NOTHING = 100
#: Slots of consumers that come and go beside the regular ones begin here.
GUESTS = 100
#: Seconds that a guest may take to come to work.
GUEST_PATIENCE = 60
CUTS: tuple[tuple[Direction, ...], ...] = (("to_broker", "to_client"), ("to_broker",), ("to_client",))


@dataclass
class Stage:
    """What a burst acts on."""

    arena: Arena
    children: Children
    driver: HistoryFile
    until: float
    #: The topics that a burst may make unwritable.
    retry: str = ""
    dead: str = ""
    #: The routers, sequencers and senders of a round that has them.
    services: Services | None = None
    #: Bursts done, by name.
    done: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the round's time is over."""
        return time.monotonic() >= self.until

    def wait(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    @property
    def cluster(self) -> Brokers:
        """The cluster; only rounds that have one have bursts that ask for it."""
        assert self.arena.cluster is not None
        return self.arena.cluster

    @contextmanager
    def trouble(self, name: str) -> Iterator[None]:
        """From here to the end of the block consumers may not hear from the log."""
        self.children.trouble(name)
        try:
            yield
        finally:
            self.children.relief(name)


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
    poison: tuple[Poison, ...] = ()
    #: Per cent of handlers that take up to a second and a half.
    slow_percent: float = 0.0
    #: Seconds that the partitions of a topic may stand still although messages wait, on a machine with other tenants.
    longest_stall: float = 30.0
    #: The topic has lanes, some messages are delayed, and processes multicast beside them.
    together: bool = False

    def run(self, stage: Stage, seed: int, calm: float = 2.0) -> None:
        """Bursts until the round's time is over; raises what went wrong in them."""
        errors: list[BaseException] = []

        def act(number: int, bursts: tuple[Burst, ...]) -> None:
            rng = random.Random(f"{seed}/{number}")
            deck: list[Burst] = []
            try:
                while not stage.over:
                    # Each comes once before any comes again.
                    deck = deck or rng.sample(bursts, len(bursts))
                    burst = deck.pop()
                    stage.done.append(burst.__name__)
                    burst(stage, rng)
                    stage.wait(rng.uniform(calm / 2, calm))
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
    slot = rng.choice(stage.children.slots)
    stage.children.kill(slot)
    stage.wait(rng.uniform(0, 3))
    stage.children.start(slot)
    stage.wait(rng.uniform(1, 5))


def kill_in_transaction(stage: Stage, rng: random.Random) -> None:
    """It dies by itself, with a transaction open; who can't have one in this weather dies anyhow."""
    slot = rng.choice(stage.children.slots)
    pid = stage.children.pid(slot)
    until = time.monotonic() + TRANSACTION_PATIENCE
    while stage.children.pid(slot) == pid and time.monotonic() < until:
        stage.children.arm_kill(slot)  # again, because one that is just starting can't take the signal
        stage.wait(0.1)
    if stage.children.pid(slot) == pid:
        stage.children.kill(slot)
        stage.children.start(slot)
    stage.wait(rng.uniform(3, 8))


def stop_consumer(stage: Stage, rng: random.Random) -> None:
    slot = rng.choice(stage.children.slots)
    stage.children.freeze(slot)
    try:
        stage.wait(SESSION + rng.uniform(1, 3))
    finally:
        stage.children.thaw(slot)


def rejoin(stage: Stage, rng: random.Random) -> None:
    """A guest comes and goes: everything is revoked, most of it comes back, and slow handlers run meanwhile."""
    guest = GUESTS + len(stage.done)
    stage.children.start(guest)
    try:
        for _ in range(100 * GUEST_PATIENCE):
            if stage.children.begun(guest):
                break
            stage.wait(0.01)
        stage.wait(rng.uniform(1, 4))
    finally:
        if guest in stage.children.slots:
            stage.children.retire(guest)


def rolling_restart(stage: Stage, rng: random.Random) -> None:
    with stage.trouble("rolling-restart"):
        stage.cluster.rolling_restart()


def kill_broker(stage: Stage, rng: random.Random) -> None:
    _take_a_broker(stage, rng, "kill-broker", stage.cluster.kill)


def stop_broker(stage: Stage, rng: random.Random) -> None:
    _take_a_broker(stage, rng, "stop-broker", stage.cluster.stop)


def _take_a_broker(stage: Stage, rng: random.Random, name: str, take: Callable[[int], object]) -> None:
    node = rng.choice(stage.cluster.nodes)
    with stage.trouble(name):
        take(node)
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


def retry_refuses(stage: Stage, rng: random.Random) -> None:
    _refuses(stage, rng, stage.retry)


def retry_lacks_replicas(stage: Stage, rng: random.Random) -> None:
    _lacks_replicas(stage, rng, stage.retry)


def dead_letters_refuse(stage: Stage, rng: random.Random) -> None:
    _refuses(stage, rng, stage.dead)


def dead_letters_lack_replicas(stage: Stage, rng: random.Random) -> None:
    _lacks_replicas(stage, rng, stage.dead)


def _refuses(stage: Stage, rng: random.Random, topic: str) -> None:
    """The topic refuses every record by itself, for its size; a consumer that starts may put that right."""
    with stage.trouble(f"unwritable {topic}"), _setting(stage, topic, "max.message.bytes", NEXT_TO_NOTHING):
        stage.wait(rng.uniform(2, 6))


def _lacks_replicas(stage: Stage, rng: random.Random, topic: str) -> None:
    """The topic takes nothing, because a broker is away and this topic wants all three in sync."""
    node = rng.choice(stage.cluster.nodes)
    with stage.trouble(f"unwritable {topic}"), _setting(stage, topic, "min.insync.replicas", 3):
        stage.cluster.stop(node)
        try:
            stage.wait(rng.uniform(2, 8))
        finally:
            stage.cluster.start(node)
    stage.cluster.wait_in_sync()


@contextmanager
def _setting(stage: Stage, topic: str, name: str, value: int) -> Iterator[None]:
    """The topic has this setting from here to the end of the block, if nobody changes it meanwhile."""
    # Through the library: it asks again where an election, or a broker that goes, swallows the answer.
    backend = KafkaBackend(stage.arena.bootstrap, {})
    admin = KafkaAdmin(backend.handles, deadline=CONFIG_PATIENCE)
    try:
        before = admin.topic(topic).config[name]
        admin.update_topic(topic, {name: str(value)})
        try:
            yield
        finally:
            admin.update_topic(topic, {name: before})
    finally:
        admin.close()
        backend.close()


def kill_router(stage: Stage, rng: random.Random) -> None:
    _kill_service(stage, rng, "router")


def stop_router(stage: Stage, rng: random.Random) -> None:
    _stop_service(stage, rng, "router")


def kill_sequencer(stage: Stage, rng: random.Random) -> None:
    _kill_service(stage, rng, "sequencer")


def stop_sequencer(stage: Stage, rng: random.Random) -> None:
    _stop_service(stage, rng, "sequencer")


def kill_sender(stage: Stage, rng: random.Random) -> None:
    _kill_service(stage, rng, "sender")


def _kill_service(stage: Stage, rng: random.Random, kind: str) -> None:
    assert stage.services is not None
    name = rng.choice(stage.services.names(kind))
    stage.services.kill(name)
    stage.wait(rng.uniform(0, 3))
    stage.services.start(name)
    stage.wait(rng.uniform(1, 5))


def _stop_service(stage: Stage, rng: random.Random, kind: str) -> None:
    assert stage.services is not None
    name = rng.choice(stage.services.names(kind))
    stage.services.freeze(name)
    try:
        stage.wait(SESSION + rng.uniform(1, 3))
    finally:
        stage.services.thaw(name)


#: Bursts of the rounds in which anything may happen, those of consumers and those of brokers.
OF_CONSUMERS: tuple[Burst, ...] = (kill_consumer, kill_in_transaction, stop_consumer, rejoin)
OF_BROKERS: tuple[Burst, ...] = (
    rolling_restart,
    kill_broker,
    slow_broker,
    partition,
    retry_refuses,
    retry_lacks_replicas,
    dead_letters_refuse,
    dead_letters_lack_replicas,
)
OF_SERVICES: tuple[Burst, ...] = (kill_router, stop_router, kill_sequencer, stop_sequencer, kill_sender)

FAULTS: Mapping[str, Fault] = {
    "kill-consumer": Fault("kill -9 of consumers, started again", ((kill_consumer,),)),
    "kill-in-transaction": Fault(
        "kill -9 of consumers inside an open transaction, started again", ((kill_in_transaction,),)
    ),
    "stop-consumer": Fault("SIGSTOP of consumers beyond their session, then SIGCONT", ((stop_consumer,),)),
    "rejoin": Fault(
        "revoke and assign to the same owners, with slow handlers running", ((rejoin,),), slow_percent=3
    ),
    # On a busy machine each of the three takes ten seconds and more to end, and to come back.
    "rolling-restart": Fault(
        "brokers stopped and started in turn", ((rolling_restart,),), cluster=True, longest_stall=60.0
    ),
    "kill-broker": Fault("kill -9 of brokers, started again", ((kill_broker,),), cluster=True),
    "slow-broker": Fault("a broker far away, on a thin line", ((slow_broker,),), cluster=True, detour=True),
    "partition": Fault(
        "a broker that clients can't hear, can't talk to, or both", ((partition,),), cluster=True, detour=True
    ),
    "poison-raises": Fault("messages whose handler raises, always", poison=("raises",)),
    "poison-hangs": Fault("messages whose handler hangs beyond its lease, always", poison=("hangs",)),
    # It takes seven lives, of a few tenths of a second, and in them nobody else may have a turn. Each
    # costs a session and a rebalance: six seconds on an idle machine.
    "poison-kills": Fault("messages that kill their process, always", poison=("kills",), longest_stall=100.0),
    "retry-unwritable": Fault(
        "the retry topic takes no writes for a while", ((retry_refuses, retry_lacks_replicas),), cluster=True
    ),
    "dead-letter-unwritable": Fault(
        "the dead-letter topic takes no writes for a while",
        ((dead_letters_refuse, dead_letters_lack_replicas),),
        cluster=True,
        poison=("raises",),
    ),
    "mixed": Fault(
        "everything at once: consumers, brokers, network, topics and poison, at random",
        (OF_CONSUMERS, OF_BROKERS),
        cluster=True,
        detour=True,
        poison=("raises", "hangs", "kills"),
        slow_percent=1,
        longest_stall=60.0,
    ),
    "together": Fault(
        "delays, lanes and multicasts at once: kill -9 and stops of routers, sequencers, consumers and brokers",
        (OF_CONSUMERS, OF_SERVICES, (kill_broker, stop_broker)),
        cluster=True,
        longest_stall=60.0,
        together=True,
    ),
}
