"""A simulated process: the client's real runner and coordinator without their threads.

Rules
1. The loops of the fetcher's and the runner's threads are steps here, taken when the schedule says so.
2. The fetcher's questions to the runner are answered at once; the rest of the runner's sweep
   after answering sometimes happens before the fetcher goes on.
3. After every step of the runner everything that can be checked is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from kafka_pubsub.config import FlowControl, SubscriptionRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster
from kafka_pubsub.log.memory.reader import MemoryReader
from kafka_pubsub.model import AckFuture, Committed, Message, ReadFrom, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.effects import (
    CommitBoth,
    ReadBodies,
    Restart,
    StoreMoves,
    Trim,
    WriteDeadLetters,
)
from kafka_pubsub.subscribe.partition.events import Passed
from kafka_pubsub.subscribe.partition.inline_lease import finished
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.stream.runner import READ_WAIT, StreamRunner
from kafka_pubsub.subscribe.takeover.rejoining_reader import RejoiningReader
from kafka_pubsub.subscriber import Subscriber
from tests.simulation.answers import Answers, Place
from tests.simulation.faults import Faults
from tests.simulation.inbox import SimulatedInbox
from tests.simulation.ledger import Ownership, promise
from tests.simulation.plan import Plan
from tests.simulation.retry import SteppedRelocating
from tests.simulation.retry_ledger import RetryLedger
from tests.simulation.spared import SparingCoordinator
from tests.simulation.worker_pool import ScriptedWorkers

__all__ = ["Died", "Process", "World"]

Answer = TypeVar("Answer")

SESSION = 6.0
#: Tries of an assignment: whoever holds it up is shut out at the first, so that the next succeeds.
TRIES = 3


class Died(BaseException):
    """A process died in the middle of something: whoever was at it does nothing more."""


class World(Protocol):
    """A process's view of the world around it."""

    plan: Plan
    ledger: RetryLedger
    answers: Answers
    cluster: MemoryCluster
    calm: bool

    def now(self) -> float: ...
    def chance(self, probability: float) -> bool: ...
    def choose_conduct(self) -> str: ...
    def between(self, low: float, high: float) -> float: ...
    def jitter(self) -> float: ...
    def silent_until(self, since: float) -> float | None: ...
    def bits(self) -> int: ...
    def say(self, text: str) -> None: ...
    def record(self) -> SubscriptionRecord: ...
    def layout_of(self, record: SubscriptionRecord) -> Layout: ...
    def give_lanes(self, stream_runner: StreamRunner) -> None: ...
    def go_on(self, steps: int) -> None: ...
    def time_passes(self, seconds: float) -> None: ...
    def refuses(self, topic: str) -> PubSubError | None: ...
    def poison(self, partition: int, offset: int, key: bytes | None) -> str | None: ...
    def page(self, partition: PartitionId) -> int: ...


class Instant(threading.Event):
    """An event that nobody could set while somebody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class SimulatedRunner(StreamRunner):
    """The runner without threads; tells the ledger of its steps."""

    owner: Process
    #: While partitions are given up: the acks that their final commit must hold.
    _leaving: dict[PartitionId, set[int]]

    def wake(self) -> None:
        pass

    def fetches(self, thread: threading.Thread) -> bool:
        """Tries an assignment again: nothing but time helps."""
        self.owner.world.time_passes(0.5)
        self.owner.tries += 1
        promise(self.owner.tries <= TRIES, f"blocked: {self.owner.name} can't take on what it was assigned")
        return True

    def ask(self, call: Callable[[], Answer], timeout: float | None = None) -> Answer:
        box: list[Answer] = []
        self.post(lambda: box.append(call()))
        while self._posted:
            self._posted.popleft()()
        if self.owner.world.chance(0.3):
            self.step(self.owner.world.now())
        return box[0]

    def sleep(self, seconds: float) -> None:
        self.owner.world.time_passes(seconds)

    def step(self, now: float, *, hand_out: bool = True, inline: bool = False) -> None:
        self.owner.alive()
        for ownership in self.owner.ownerships():
            ownership.processed.update(ownership.reported)
        before = len(self._to_commit)
        super().step(now, hand_out=hand_out, inline=inline)
        for commits in list(self._to_commit)[before:]:
            for number, commit in commits.items():
                author = self.owner.ownership(number)
                self.owner.ledger.commit_made(author, commit, author.processed)
        self.owner.check()
        self.owner.world.answers.check()

    def _thread(self, role: Callable[[], None], name: str) -> threading.Thread:
        return threading.current_thread()  # after a take-over any turn is the next fetcher's

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        self.owner.tries = 0
        positions = super().assigned(partitions)
        for place in partitions:
            number = self.rebalances.layout.number(place)
            if number in self.coordinator.partitions.owned:
                ownership = self.owner.ownership(number)
                self.owner.say(f"has {place} from {positions.get(place)}: {ownership!r}")
        return positions

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        numbers = [self.rebalances.layout.number(place) for place in partitions]
        self.owner.say(f"gives up {numbers}")
        heard = self.owner.valid()  # else the process was removed already, and nothing of its words counts
        for number in self.owner.coordinator.partitions.owned.keys() & numbers if heard else ():
            self._leaving[number] = set(self.owner.ownership(number).reported)
        try:
            super().revoked(partitions)
            for number in set(numbers):
                self.owner.ledger.left(self.owner.world.page(number), self._leaving.get(number, ()))
        finally:
            self._leaving.clear()

    def said(self, number: PartitionId) -> None:
        """A partition that goes has had its final commit, or is given up because something wasn't answered."""
        self._leaving.pop(number, None)

    def commit(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        super().commit(commits)
        for number in commits if self._reader.unanswered() else ():
            self.said(
                number
            )  # an earlier commit wasn't answered: the membership ends, and no final commit is sent

    def lose(self, numbers: Sequence[PartitionId]) -> None:
        for number in numbers:
            self.said(number)
        super().lose(numbers)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.owner.say(f"has lost {[place.partition for place in partitions]}")
        super().lost(partitions)

    def send(self, commits: Mapping[PartitionId, CommitBoth]) -> None:
        super().send(commits)
        for number, commit in commits.items():
            self.said(number)
            self.owner.say(f"commits {number}: {commit.offset}")
            stored = self.owner.stored().get(number) == Committed(commit.offset, commit.metadata)
            promise(
                not stored or number in self.owner.share(), f"{self.owner.name} commits another's {number}"
            )
        self.owner.look()


class SimulatedCoordinator(SparingCoordinator):
    """The coordinator; tells the ledger which messages walks have acked."""

    owner: Process

    def _have_done(
        self,
        number: PartitionId,
        effect: StoreMoves | WriteDeadLetters | ReadBodies | Trim | Restart,
        now: float,
    ) -> None:
        if isinstance(effect, StoreMoves | Restart):
            self.owner.stream_runner.said(number)
        super()._have_done(number, effect, now)

    def passed(self, passed: Passed, now: float) -> None:
        if passed.lease.state is not LeaseState.OVER:
            self.owner.ownership_of(passed.lease).reported.update(r.offset() for r in finished(passed))
        super().passed(passed, now)


class Process:
    """A single process that pulls the subscription."""

    def __init__(self, world: World, name: str, mode: str) -> None:
        self.world, self.name, self.ledger, self.plan = world, name, world.ledger, world.plan
        faults = Faults(world)
        self._backend = MemoryBackend(cluster=world.cluster, faults=faults, session_timeout=SESSION)
        self.subscription = world.record()
        #: Seconds by which its wall clock is wrong.
        self.wrong_by = 0.0
        self._joining = RejoiningReader(lambda: self._backend.reader(self.subscription.name, name))
        number = world.bits()
        self.retry_side = SteppedRelocating(
            world,
            self._backend,
            world.layout_of(self.subscription),
            number,
            self._joining.membership,
            self._joining.rejoin,
        )
        self.stream_runner = SimulatedRunner(
            self._joining,
            self.subscription,
            number,
            look_up=world.record,
            on_end=lambda: None,
            on_handed_out=lambda ack_id, message: None,
            clock=world.now,
            wall=lambda: world.now() + self.wrong_by,
            retry_side=self.retry_side,
        )
        self.stream_runner.owner = self
        self.stream_runner.inbox.__class__ = SimulatedInbox
        vars(self.stream_runner.inbox)["owner"] = self
        self.stream_runner._drained = Instant()
        self.stream_runner._leaving = {}
        self.worker_pool = ScriptedWorkers(self, self.stream_runner.inbox, mode)
        flow = FlowControl.model_construct(
            max_messages=world.plan.max_messages, max_bytes=world.plan.max_bytes
        )
        self.coordinator = self.stream_runner.coordinator = SimulatedCoordinator(
            world.plan.rules,
            flow,
            self.worker_pool,
            self.stream_runner.inbox.process,
            world.jitter,
            self.retry_side,
        )
        self.coordinator.owner = self
        self.stream_runner.rebalances.layout_of = world.layout_of
        world.give_lanes(self.stream_runner)
        #: Inline callbacks that run, each inside the other's take-over.
        self._depth = 0
        self._joining.subscribe(self.stream_runner.rebalances.topics(), self.stream_runner)
        faults.process = self
        #: Set when the process has died; how many of its requests are on their way; tries of the last assignment.
        self.dead = False
        self._requests = 0
        self.tries = 0
        self._sweeps = 0
        #: Until when nothing, or the fetcher or the handlers alone, move.
        self.stalled_until = 0.0
        self.stalled: frozenset[str] = frozenset()
        #: Set while it closes: how long it waits for its handlers.
        self.patience: float | None = None

    # Steps

    def moves(self, part: str) -> bool:
        """Whether this part of the process isn't stalled."""
        if self.dead or (self._requests and part == "fetcher"):
            return False
        return self.world.calm or self.world.now() >= self.stalled_until or part not in self.stalled

    def fetcher(self) -> None:
        """A turn of the fetcher's loop."""
        self.stream_runner._make_room()
        self._meanwhile()
        self.stream_runner.fetch(READ_WAIT)
        self.worker_pool.sort()
        self._meanwhile()
        if not self.world.chance(0.1):
            self.stream_runner.commit_posted()

    def _meanwhile(self) -> None:
        """The runner doesn't wait for the fetcher."""
        if self.world.chance(0.15) and self.moves("runner"):
            self.runner()

    def runner(self) -> None:
        """A sweep of the runner's."""
        if self.worker_pool.run == 1 and self.world.chance(0.5):
            self.worker_pool.wanted = int(self.world.between(1, 5))
        self.stream_runner.step(self.world.now())

    def mover(self) -> None:
        """A single step of any mover."""
        self.retry_side.step()

    def look(self) -> None:
        """The ledger looks at the log."""
        self.ledger.look()

    # Death

    def alive(self) -> None:
        """Whoever is still at something for a dead process does nothing more."""
        if self.dead:
            raise Died(self.name)

    def die(self, how: str) -> None:
        """The process is gone, with all its work."""
        self.say(f"dies {how}")
        self.dead = True
        raise Died(self.name)

    def waits(self) -> None:
        """While the fetcher's request is on its way, everybody else goes on, this process too."""
        if self._requests:
            return
        self._requests += 1
        try:
            for _ in range(int(self.world.between(0, 8))):
                self.world.time_passes(0.1)
                self.runner()
                self.mover()
            self.world.go_on(int(self.world.between(1, 6)))
        finally:
            self._requests -= 1
        self.alive()

    def make_way(self) -> None:
        """An inline callback waits for its ack: others commit meanwhile."""
        self.stream_runner.make_way()
        self._depth += 1
        self.world.go_on(int(self.world.between(1, 12)))
        self._depth -= 1

    def meanwhile(self) -> None:
        """While an inline callback runs the pool and the runner go on; after a take-over, the fetcher too."""
        world, plan = self.world, self.plan
        if not world.chance(plan.beside) or self._depth > 1:
            return
        self._depth += 1
        for _ in range(int(world.between(1, 4))):
            self._beside()
        if world.chance(plan.taken_over):
            self.say("takes over")
            self.stream_runner.take_over()
            world.go_on(int(world.between(1, 12)))
        self._depth -= 1

    def _beside(self) -> None:
        hands = self.worker_pool.movable()
        if hands and self.world.chance(0.6):
            self.worker_pool.move(hands[int(self.world.between(0, len(hands)))])
        else:
            self.runner()

    def leave(self) -> None:
        """Begins to close."""
        self.patience = self.world.now() + self.world.between(0.0, 30.0)
        self.stream_runner.begin_nothing_more()

    def finish(self) -> None:
        """Leaves the group, with a final commit, as `Stream.close` does."""
        self._joining.close()
        self.stream_runner.step(self.world.now())
        Subscriber(self._backend, self.world.record)._copy_positions(self.stream_runner)
        self.coordinator.end(self.world.now())
        self.world.answers.check()

    # Looking in

    @property
    def reader(self) -> MemoryReader:
        """The current member."""
        return cast("MemoryReader", self._joining._reader)

    def share(self) -> set[PartitionId]:
        """The partitions that its reader was told are its own."""
        layout = self.stream_runner.rebalances.layout
        return {layout.number(place) for place in self.reader._held}

    def valid(self) -> bool:
        """Whether the group still counts the process as an owner of its share."""
        with self.world.cluster.changed:
            group = self.world.cluster.group(self.subscription.name)
            return group.fence(self.reader._member, self.reader._generation) is None

    def stored(self) -> dict[PartitionId, Committed]:
        """The group's stored state."""
        with self.world.cluster.changed:
            offsets = self.world.cluster.group(self.subscription.name).offsets
            layout = self.stream_runner.rebalances.layout
            homes = {view.topic for view in layout.views.values()}
            return {layout.number(place): value for place, value in offsets.items() if place.topic in homes}

    def ownership(self, number: PartitionId) -> Ownership:
        """The ledger's page of a partition that is here now."""
        return self._page(number, self.coordinator.partitions.epoch_of(number))

    def ownership_of(self, lease: Lease) -> Ownership:
        """The page that a lease belongs to."""
        return self._page(lease.partition, lease.epoch)

    def _page(self, number: PartitionId, epoch: int) -> Ownership:
        return self.ledger.owns(self.name, self.world.page(number), epoch)

    def ownerships(self) -> list[Ownership]:
        """All pages that are open."""
        return [self.ownership(partition.number) for partition in self.coordinator.partitions.all()]

    def check(self) -> None:
        """Everything that can be said at any time, now and then: it costs more than a sweep."""
        coordinator = self.coordinator
        self._sweeps += 1
        if self._sweeps % (12 if self.calm else 4):
            return
        partitions = coordinator.partitions
        partitions.check()
        active = sum(len(partition._leases.active) for partition in partitions.all())
        promise(active == coordinator.in_flight(), f"{active} leases, {coordinator.in_flight()} counted")
        halves = [partition._retry_partition for partition in partitions.all()]
        begun = active - sum(half.waiting_suspects for half in halves)
        promise(begun <= self.world.plan.max_messages, f"{begun} leases, more than max_messages")
        promise(partitions.owned.keys() <= self.share(), f"{self.name} owns what it doesn't hold")
        stale = coordinator.counts.stale + len(self.stream_runner.inbox._stale)
        promise(stale >= self.worker_pool.late, f"I4: {self.worker_pool.late} late reports, {stale} counted")

    # The pool's view (Stage)

    @property
    def calm(self) -> bool:
        return self.world.calm

    def now(self) -> float:
        return self.world.now()

    def chance(self, probability: float) -> bool:
        return self.world.chance(probability)

    def choose_conduct(self) -> str:
        return self.world.choose_conduct()

    def between(self, low: float, high: float) -> float:
        return self.world.between(low, high)

    def say(self, text: str) -> None:
        self.world.say(f"{self.name} {text}")

    def begins(self, lease: Lease, message: Message, together: Sequence[int]) -> None:
        """A handler gets a message."""
        partition = self.coordinator.partitions.owned.get(lease.partition)
        now_owned = partition is not None and partition.open and partition.epoch == lease.epoch
        promise(now_owned, f"{self.name} begins {lease!r}, which was taken from it")
        whole = self.stream_runner.rebalances.layout.places(lease.partition.partition) <= set(
            self.reader._held
        )
        promise(
            whole or not self.reader._held, f"{self.name} begins {lease!r} and has one half of the partition"
        )
        valid = self.valid() and lease.partition in self.share()
        place = Place(self.world.page(lease.partition), message.offset)
        self.world.answers.begins(self.name, place, message, valid=valid)
        record = lease.records[self.worker_pool_index(lease, message)]
        alone = (
            not self.worker_pool.spread
        )  # the followers in a batch's run count as delivered only when it is their turn
        self.ledger.begins(
            self.ownership_of(lease),
            record,
            message.delivery_attempt,
            together,
            valid=valid,
            alone=alone,
            now=self.world.now() + self.plan.retry.wrong_clocks,
        )
        if self.poison(lease, message) == "kills":
            self.die(f"of {message.offset} of {lease.partition}")

    def poison(self, lease: Lease, message: Message) -> str | None:
        """The message's effect on its handlers."""
        return self.world.poison(self.world.page(lease.partition), message.offset, message.key)

    @staticmethod
    def worker_pool_index(lease: Lease, message: Message) -> int:
        """Which of the lease's records a message is."""
        return next(at for at, record in enumerate(lease.records) if record.offset() == message.offset)

    def ask(self, lease: Lease, message: Message) -> AckFuture:
        """A handler acks, and waits for the answer."""
        answer = message.ack_with_response()
        self.world.answers.asked(
            self.name, Place(self.world.page(lease.partition), message.offset), message, answer
        )
        return answer

    def acked(self, lease: Lease, offsets: Iterable[int]) -> None:
        """A handler acked in time."""
        self.ledger.acked(self.ownership_of(lease), offsets)
