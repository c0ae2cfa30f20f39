"""The troubles of a simulated world: crashes, stalls, members that come and go, and logs that change by themselves.

Theory. Each method is an action that the schedule may choose. A process's work goes through `act`, since it may die
in the middle of anything: then whoever was at it, on whatever level, does nothing more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster, VirtualClock
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.formats.record import RETRY_HEADER
from tests.simulation.growth import Growth
from tests.simulation.plan import Plan
from tests.simulation.process import SESSION, Died, Process
from tests.simulation.retry_ledger import DEAD, RETRY, RetryLedger

__all__ = ["GROUP", "TOPIC", "Troubles"]

TOPIC, GROUP = "orders", "billing"


class Stranger:
    """A member of the group that lists the topic alone, and serves nothing: shares of both topics come apart."""

    def __init__(self, backend: MemoryBackend, name: str) -> None:
        self.reader = backend.reader(GROUP, name)
        self.reader.subscribe([TOPIC], self)

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Reads nothing."""
        return {}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Has nothing to say."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Has nothing to lose."""

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Isn't told anything: it reads nothing."""


class Troubles(Growth):
    """The actions of a world that aren't a healthy life's."""

    plan: Plan
    random: Random
    calm: bool
    clock: VirtualClock
    backend: MemoryBackend
    cluster: MemoryCluster
    ledger: RetryLedger
    #: A key whose handlers fail for now.
    stuck: bytes | None
    #: Whether the dead letters' topic takes nothing for now.
    shut: bool

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self._born = self._transactions = 0
        self._open: list[tuple[int, str, list[int]]] = []
        self._stranger: Stranger | None = None
        #: Until when handlers fail, whatever they get; and until when a topic takes nothing.
        self._down_until = 0.0
        self._unwritable: dict[str, float] = {}
        self.rubbish_written = 0

    @abstractmethod
    def now(self) -> float: ...
    @abstractmethod
    def chance(self, probability: float) -> bool: ...
    @abstractmethod
    def between(self, low: float, high: float) -> float: ...
    @abstractmethod
    def say(self, text: str) -> None: ...
    @abstractmethod
    def record(self) -> SubscriptionRecord: ...
    @abstractmethod
    def append(self, key: bytes | None, transaction: str | None = None) -> tuple[int, int]: ...

    @property
    def numbers(self) -> int:
        """How many home partitions there are."""
        return self.partitions

    def home(self, number: int) -> TopicPartition:
        """The home partition with this number."""
        return TopicPartition(TOPIC, number)

    def ends(self) -> Mapping[int, int]:
        """The ends of the home partitions, by number."""
        return self.backend.admin.last_stable_offsets(TOPIC)

    def act(self, process: Process, step: Callable[[], object]) -> None:
        """A single step of a process, which may be its last."""
        try:
            if not process.dead:
                step()
        except Died:
            if not process.dead:
                raise
        if process.dead and process in self.processes:
            self.processes.remove(process)

    def any_that(self, part: str) -> Process | None:
        """A process of which this part can move."""
        healthy = [process for process in self.processes if process.moves(part)]
        return self.random.choice(healthy) if healthy else None

    # Trouble

    def crash(self) -> None:
        if self.processes:
            process = self.random.choice(self.processes)
            self.say(f"{process.name} crashes")
            process.dead = True
            self.processes.remove(process)

    def stall(self) -> None:
        if self.processes:
            process = self.random.choice(self.processes)
            everything = {"fetcher", "runner", "callback", "mover"}
            process.stalled = frozenset(
                self.random.choice([everything, {"fetcher"}, {"fetcher", "runner"}, {"callback"}])
            )
            process.stalled_until = self.now() + self.between(0.5, 3 * SESSION)
            self.say(
                f"{process.name} stalls until {process.stalled_until - 1000:.3f}: {sorted(process.stalled)}"
            )

    def set_clock(self) -> None:
        """The wall clock of a process is set, right or wrong."""
        wrong = self.plan.retry.wrong_clocks
        if self.processes:
            process = self.random.choice(self.processes)
            process.wrong_by = self.random.choice([0.0, wrong, -wrong])
            self.say(f"the clock of {process.name} is wrong by {process.wrong_by} s")

    def leave(self) -> None:
        process = self.any_that("fetcher")
        if process is not None and process.patience is None:
            self.say(f"{process.name} begins to close")
            self.act(process, process.leave)

    def _perhaps_finish(self, process: Process) -> None:
        if not process.moves("fetcher"):
            return
        if process.patience is not None and (process.worker_pool.close(0) or self.now() >= process.patience):
            self.say(f"{process.name} leaves")
            self.act(process, process.finish)
            process.dead = True
            if process in self.processes:
                self.processes.remove(process)

    def evict(self) -> None:
        if self.processes:
            name = self.random.choice(self.processes).name
            self.say(f"{name} is removed from the group")
            self.cluster.evict(GROUP, name)

    def hole(self) -> None:
        self.cluster.skip_offsets(
            *self.home(self.random.randrange(self.numbers)), self.random.choice([1, 1, 5])
        )

    def transaction(self) -> None:
        """Another producer's transaction begins, or ends in some way."""
        if self._open and self.chance(0.6):
            self._end_transaction(self.chance(0.6))
            return
        self._transactions += 1
        name = f"t{self._transactions}"
        written: dict[int, list[int]] = {}
        for _ in range(self.random.choice([1, 3])):
            number, offset = self.append(self.random.choice(self.plan.keys), name)
            written.setdefault(number, []).append(offset)
        self._open += [(number, name, offsets) for number, offsets in written.items()]

    def _end_transaction(self, committed: bool) -> None:
        number, name, offsets = self._open.pop(self.random.randrange(len(self._open)))
        self.cluster.finish_transaction(*self.home(number), name, committed)
        if not committed:
            self.ledger.taken_out(number, offsets)

    def retention(self) -> None:
        number = self.random.randrange(self.numbers)
        if any(number == open_one[0] for open_one in self._open):
            return  # a broker keeps the segment of an open transaction
        info = self.ends()[number]
        before = self.random.randint(0, info)
        self.say(f"retention takes {number} up to {before}")
        self.cluster.truncate(*self.home(number), before)
        log = self.ledger.logs[number]
        self.ledger.taken_out(number, [offset for offset in log.keys if offset < before])

    def compaction(self) -> None:
        number = self.random.randrange(self.numbers)
        log = self.ledger.logs[number]
        in_transaction = {offset for n, _, offsets in self._open if n == number for offset in offsets}
        taken = [offset for offset in log.keys if offset not in in_transaction and self.chance(0.3)]
        self.say(f"compaction takes {taken} of {number}")
        self.cluster.compact(*self.home(number), taken)
        self.ledger.taken_out(number, taken)

    # The retry topic

    def outage(self) -> None:
        """A service that handlers need is down for a while."""
        self._down_until = self.now() + self.between(1.0, 40.0)
        self.say(f"an outage until {self._down_until - 1000:.3f}")

    def unwritable(self) -> None:
        """A topic takes no records for a while."""
        topic = self.random.choice([RETRY, DEAD])
        self._unwritable[topic] = self.now() + self.between(0.5, 20.0)
        self.say(f"{topic} takes nothing until {self._unwritable[topic] - 1000:.3f}")

    def refuses(self, topic: str) -> PubSubError | None:
        """Why a record can't be written now."""
        retry = self.plan.retry
        if self.shut and topic == DEAD and not self._silence:
            return BrokerUnavailable(f"injected: {topic} takes nothing")
        if self.calm:
            return None
        if self.now() < self._unwritable.get(topic, 0.0) or self.chance(retry.refused):
            return BrokerUnavailable(f"injected: {topic} doesn't take it")
        return None

    @property
    def _silence(self) -> float:
        """For how many seconds the dead letters' topic doesn't answer, while it takes nothing."""
        return self.plan.retry.silent if self.shut else 0.0

    def silent_until(self, since: float) -> float | None:
        """Until when nothing answers to dead letters that were written then; None: the log does."""
        return since + self._silence if self._silence else None

    def poison(self, partition: int, offset: int, key: bytes | None) -> str | None:
        """A message's effect on its handlers now."""
        if (kind := self.ledger.poison[partition].get(offset)) is not None:
            return kind
        if key is not None and key == self.stuck:
            return "raises"
        down = not self.calm and self.now() < self._down_until and self.chance(0.95)
        return "raises" if down else None

    def stranger(self) -> None:
        """A member that lists other topics comes, or goes."""
        if self._stranger is None:
            self._born += 1
            self._stranger = Stranger(self.backend, f"a{self._born}")  # first in the assignor's order
            self._stranger.reader.read(1, 0)
            self.say("a stranger joins")
        else:
            self._stranger.reader.close()
            self._stranger = None
            self.say("the stranger leaves")

    def rubbish(self) -> None:
        """Somebody writes into the retry topic."""
        key = self.random.choice(self.plan.keys)
        headers = self.random.choice([None, [(RETRY_HEADER, b"rubbish")]])
        self.cluster.append(RETRY, self.random.randrange(self.partitions), b"rubbish", key, headers)
        self.rubbish_written += 1

    def usurp(self) -> None:
        """While a transaction of theirs shows late, all members are removed."""
        if any(each.log.stable_end < each.log.end for each in self.ledger.beside):
            self.say("all are removed from the group")
            self.cluster.evict(GROUP)

    def _end_troubles(self) -> None:
        while self._open:
            self._end_transaction(committed=True)
        if self._stranger is not None:
            self.stranger()
        for process in self.processes:
            process.wrong_by = 0.0
