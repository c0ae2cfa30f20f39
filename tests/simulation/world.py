"""A whole world from a single number: the log, the group, the processes, and their troubles.

Theory. Everything that can happen is an action; a seeded generator chooses in turn. Nothing else is
random, nothing takes real time, so a seed is a story that can be told again. When the story is over the world
calms down: nothing fails any more, handlers ack, and everything has to settle.

Rules
1. No healthy process is silent for longer than a third of its session, however far time jumps.
2. A process that crashes takes everything with it; a process that stalls goes on later where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random

from kafka_pubsub.config import DeadLetterPolicy, RetryTopic, SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.log.memory import MemoryBackend, MemoryCluster, VirtualClock
from kafka_pubsub.model import Header, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.retry_topic.layout import Layout
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from tests.simulation.answers import Answers, Place
from tests.simulation.disasters import DISASTERS
from tests.simulation.ledger import promise
from tests.simulation.plan import Plan, PlanVariant, scaled
from tests.simulation.process import SESSION, Process
from tests.simulation.retry_ledger import DEAD, RETRY, RetryLedger
from tests.simulation.retry_plan import ATTEMPTS
from tests.simulation.trouble import GROUP, TOPIC, Troubles
from tests.simulation.worker_pool import Hand

__all__ = ["SimulatedWorld", "Story", "simulate"]

#: Messages that kill or hang: each costs some lives, or minutes. (A message that kills may bring each neighbour under
#: suspicion once.)
MOST_COSTLY = 3
#: Seconds of a round after a round in which nothing happened: less than a third of a session.
IDLE = 1.9
#: Rounds of the calm at the end, a virtual second each; backoff, deadlines and sessions add up to a minute.
SETTLING = 300


@dataclass(frozen=True)
class Story:
    """The facts of a seed that held."""

    seed: int
    published: int
    deliveries: int
    ownerships: int
    #: The answers to those who waited for their acks, and how many of each.
    answers: Mapping[str, int]
    #: Whether its topic grew before the world was calm.
    grown: bool


class SimulatedWorld(Troubles):
    """A single seed's world."""

    def __init__(
        self,
        seed: int,
        tell: Callable[[str], None] | None,
        *,
        retry: bool = False,
        variant: PlanVariant | None = None,
    ) -> None:
        super().__init__()
        self.random = Random(seed)
        drawn = Plan.draw(self.random, retry=retry).with_more(Random(~seed))
        for disaster in DISASTERS.values() if retry else ():
            drawn = disaster.drawn(drawn, seed)
        self.plan = plan = drawn if variant is None else variant(drawn)
        self.calm = False
        self._tell = tell
        self.clock = VirtualClock(1000.0)
        self.backend = MemoryBackend(cluster=MemoryCluster(self.clock, blocking=False))
        self.cluster = self.backend.cluster
        self._published = 0
        self.grown_early = False
        #: Whether nobody did anything in the last round.
        self._idle = False
        self.stuck = plan.retry.stuck
        self.shut = plan.retry.shut
        self.ledger = self._make_ledger(plan)
        self.answers = Answers(self._is_durable)
        self.processes: list[Process] = []
        plan = self.plan
        self._actions = [name for name, weight in plan.actions.items() if weight]
        self._weights = list(accumulate(plan.actions[name] for name in self._actions))
        self._conducts = [name for name, weight in plan.conduct.items() if weight]
        self._conduct_weights = list(accumulate(plan.conduct[name] for name in self._conducts))
        self._create()

    def _make_ledger(self, plan: Plan) -> RetryLedger:
        return RetryLedger(
            plan.partitions,
            ordered=plan.rules.ordered,
            cluster=self.cluster,
            group=GROUP,
            attempts=ATTEMPTS,
        )

    def _create(self) -> None:
        plan = self.plan
        info = self.backend.admin.create_topic(TOPIC, plan.partitions, None, {})
        self.begin_layout(TOPIC, info.topic_id)
        for _ in range(plan.before):
            self.append(self.random.choice(plan.keys))
        ends = self.backend.admin.last_stable_offsets(TOPIC)
        self.starts = [ends[number] for number in range(plan.partitions)]
        record = SubscriptionRecord(
            name=GROUP,
            topic=TOPIC,
            topic_id=info.topic_id,
            partitions=plan.partitions,
            options=SubscriptionOptions(
                message_ordering=plan.rules.ordered, exactly_once=plan.rules.exactly_once
            ),
            positions=dict(ends),
        )
        places = {TopicPartition(TOPIC, number): end for number, end in ends.items()}
        record = self._beside(record)
        self.ledger.opens()
        places |= {TopicPartition(RETRY, number): 0 for number in ends}
        self.backend.catalog.put_subscription(record, None)
        self.backend.admin.set_positions(GROUP, places)
        for number, start in enumerate(self.starts):
            self.ledger.subscribed(number, start)

    def _beside(self, record: SubscriptionRecord) -> SubscriptionRecord:
        """The subscription with a retry topic, and perhaps dead letters."""
        info = self.backend.admin.create_topic(RETRY, self.plan.partitions, None, {})
        self.backend.admin.create_topic(DEAD, 1, None, {})
        retry = RetryTopic(
            name=RETRY, topic_id=info.topic_id, positions=dict.fromkeys(range(self.plan.partitions), 0)
        )
        policy = self.plan.rules.policy
        dead = DeadLetterPolicy(topic=DEAD) if policy.max_attempts else None
        options = record.options.model_copy(update={"dead_letter": dead})
        return record.model_copy(update={"retry_topic": retry, "options": options})

    # The processes' view

    def now(self) -> float:
        return self.clock.now()

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random.random()

    def jitter(self) -> float:
        return self.random.random()

    def bits(self) -> int:
        return self.random.getrandbits(60)

    def choose_conduct(self) -> str:
        return self.random.choices(self._conducts, cum_weights=self._conduct_weights)[0]

    def record(self) -> SubscriptionRecord:
        return self.backend.catalog.subscriptions()[GROUP]

    def layout_of(self, record: SubscriptionRecord) -> Layout:
        """The topics of the subscription, and the numbers of their partitions."""
        return Layout(record, retry=RETRY)

    def give_lanes(self, stream_runner: StreamRunner) -> None:
        """The topic has none."""

    def page(self, partition: PartitionId) -> int:
        """The number of a partition in the ledger."""
        return partition.partition

    def narrowed(self) -> AbstractContextManager[None]:
        """How little of a lane is read ahead while the world runs."""
        return nullcontext()

    def _is_durable(self, place: Place) -> bool:
        """Whether the log knows that a message is finished, just now."""
        return self.ledger.knows(*place)

    def say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.now() - 1000:9.3f} {text}")

    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # The story

    def live(self) -> None:
        """Action after action."""
        self.join()
        disasters = {name: partial(each.befall, self) for name, each in DISASTERS.items()}
        acts = {name: disasters.get(name) or getattr(self, name) for name in self._actions}
        for name in self.random.choices(self._actions, cum_weights=self._weights, k=self.plan.steps):
            acts[name]()
            self._look()

    def _look(self) -> None:
        self.ledger.look()

    def go_on(self, steps: int) -> None:
        """Some of a healthy life, and a removal now and then, while something else is under way."""
        acts = ["fetcher", "runner", "callback", "time", "publish", "evict", "mover", "crash"]
        weights = [9, 9, 9, 3, 3, 1, 9, 1]
        if self.plan.retry.killers_only:
            weights = [
                weight if act not in ("evict", "crash") else 0
                for act, weight in zip(acts, weights, strict=True)
            ]
        for act in self.random.choices(acts, weights, k=steps):
            getattr(self, act)()

    def publish(self) -> None:
        for _ in range(self.random.choice([1, 1, 3, 8])):
            self.append(self.random.choice(self.plan.keys))

    def append(self, key: bytes | None, transaction: str | None = None) -> tuple[int, int]:
        number = self.place(key)
        while number is None:  # keys are refused; somebody else publishes
            number = self.place(key := None)
        self._published += 1
        value = b"%8d" % self._published
        headers: list[Header] | None = [("n", b"%d" % self._published)] if key else None
        number, headers = self._choose_lane(number, key, headers)
        record = self.cluster.append(
            *self.home(number), value, key, headers, timestamp=self.stamp(number), transaction=transaction
        )
        offset = record.offset()
        assert offset is not None
        self.ledger.published(number, offset, key)
        self.ledger.bodies[number][offset] = (value, headers)
        if not self.calm:
            self._perhaps_poison(number, offset)
        return number, offset

    def stamp(self, number: int) -> float | None:
        """The time that the leader of a partition gives a record; None: the right one."""
        return None

    def _choose_lane(
        self, number: int, key: bytes | None, headers: list[Header] | None
    ) -> tuple[int, list[Header] | None]:
        """The number of that partition in the message's lane, and its headers."""
        return number, headers

    def _perhaps_poison(self, number: int, offset: int) -> None:
        retry, ledger = self.plan.retry, self.ledger
        if self.chance(retry.poison):
            kind = self.random.choice(retry.kinds)
            if kind == "raises" or sum(map(len, ledger.poison)) < MOST_COSTLY:
                ledger.poison[number][offset] = kind

    def join(self) -> None:
        if len(self.processes) < self.plan.processes:
            self._born += 1
            mode = self.random.choice(["walk", "walk", "walk", "batch", "pull queue"])
            process = Process(self, f"p{self._born}", mode)
            self.say(f"{process.name} joins ({mode})")
            self.processes.append(process)

    def fetcher(self) -> None:
        if (process := self.any_that("fetcher")) is not None:
            self.act(process, process.fetcher)
            self._perhaps_finish(process)

    def runner(self) -> None:
        if (process := self.any_that("runner")) is not None:
            self.act(process, process.runner)

    def mover(self) -> None:
        busy = [each for each in self.processes if each.retry_side.busy]
        if busy and (process := self.random.choice(busy)).moves("mover"):
            self.act(process, process.mover)

    def callback(self) -> None:
        process = self.any_that("callback")
        hands = process.worker_pool.movable() if process is not None else []
        if process is not None and hands:
            self.act(process, partial(process.worker_pool.move, self.random.choice(hands)))

    def time(self) -> None:
        left = self.random.choice([0.01, 0.05, 0.1, 0.1, 0.1, 0.3, 1.0, 3.0, 12.0])
        while left > 0:
            step = min(left, SESSION / 3)
            self.clock.advance(step)
            left -= step
            for process in list(self.processes):
                if process.moves("fetcher"):
                    self.act(process, process.fetcher)
                    self._perhaps_finish(process)

    # The end

    def settle(self) -> None:
        """Nothing fails any more: everything has to be finished, and known to be."""
        self.calm = True
        self.say("the world calms down")
        self._end_troubles()
        for process in [each for each in self.processes if each.patience is not None]:
            process.patience = self.now()
        for process in self.processes[1:]:  # a single process tells the rest as well as four, and sooner
            self.act(process, process.leave)
        if self.stuck is not None or self.shut:
            self._finish_all("beside what can't go on")
            self.stuck, self.shut = None, False
        self._finish_all("")
        self._finish_logs("")
        if self.plan.grows:
            self._grow_at_last()
            self._finish_all("after it has grown")
            self._finish_logs("after it has grown")
        self._check_end()
        self._close()

    def _finish_logs(self, how: str) -> None:
        """Messages that main has lost may be with a process, or wait there behind another: they must be finished."""
        for number in range(self.numbers):  # a last record, so that no hole ends the log
            key = b"end%d" % number
            record = self.cluster.append(*self.home(number), b"the end", key)
            self.ledger.published(number, record.offset() or 0, key)
            self.ledger.bodies[number][record.offset() or 0] = (b"the end", None)
        self._finish_all(how, wholly=True)

    def _grow_at_last(self) -> None:
        """All is finished, so nothing holds the key up but messages that stay in the retry topic; they are given up."""
        if not self.change_layout(self.plan.partitions + self.plan.grows, 60.0):
            promise(self.ledger.stays(), "layout: nothing is left to be done, and it doesn't grow")
            self.change_layout(self.plan.partitions, 60.0)
        for key in self.plan.keys:
            self.append(key)

    def passes(self, seconds: float) -> None:
        until = self.now() + seconds
        while self.calm and self.now() < until:
            self._round()
        while self.now() < until:
            self.go_on(int(self.between(2, 10)))
            self.clock.advance(min(SESSION / 3, max(0.0, until - self.now())))
            for process in list(self.processes):
                if process.moves("fetcher"):
                    self.act(process, process.fetcher)
                    self._perhaps_finish(process)

    def grown(self, before: int) -> None:
        self.starts += [0] * (self.partitions - before)
        self.ledger.grown(self.partitions)

    def _check_end(self) -> None:
        self.ledger.check_nothing_lost(self.starts)
        self.answers.check_end(self.ledger.never_again)
        self.ledger.check_rubbish(self.rubbish_written)
        if self.plan.retry.killers_only:
            self.ledger.check_only_poison_is_dead_lettered()

    def _finish_all(self, how: str, *, wholly: bool = False) -> None:
        """Rounds until all is settled; `wholly`: and seen to be, up to the logs' ends."""
        # After a crash a suspect's turn takes some seconds, in turn. Where markers come late and each
        # commit has a checkpoint, all is read so slowly that only standing still tells of a defect.
        messages = sum(len(log.keys) for log in self.ledger.logs)
        rounds = patience = SETTLING + 4 * messages
        finished = -1
        for _ in range(10 * patience):
            now_finished = sum(len(log.durable | log.gone) for log in self.ledger.logs)
            rounds = patience if now_finished > finished else rounds - 1
            finished = max(finished, now_finished)
            if not rounds:
                break
            if not self.processes:
                self.join()
            self._round()
            through = self._settled() and not any(p.coordinator.in_flight() for p in self._through())
            if through and not (wholly and (self._hides() or any(self._lag().values()))):
                break
        promise(
            self._settled(), f"lost: not settled {how}, {patience} s without progress: {self._leftover()}"
        )
        promise(not wholly or not any(self._lag().values()), f"lag {self._lag()} {how} when all is settled")

    def _through(self) -> Sequence[Process]:
        """Processes that should hold nothing when all is settled."""
        return () if self.stuck is not None or self.shut else self.processes

    def _settled(self) -> bool:
        held = {self.stuck} - {None}
        return all(
            self.ledger.only_held_up(number, held, exhausted=self.shut) for number in range(self.numbers)
        )

    def _round(self) -> None:
        self.clock.advance(IDLE if self._idle else 1.0)
        self._idle = True
        for process in list(self.processes):
            self.act(process, process.fetcher)
            self._perhaps_finish(process)
        for process in list(self.processes):
            for _ in range(16):
                self.act(process, process.runner)
                if not self._move_everything(process):
                    break
                if process.moves("fetcher"):  # moved messages can be read now
                    self.act(process, process.fetcher)
        self._look()

    def _move_everything(self, process: Process) -> bool:
        """Whether anything could be moved."""
        beside, moved = process.retry_side, False
        for _ in range(200):
            if not beside.busy:
                break
            moved = True
            self.act(process, process.mover)
        for hand in process.worker_pool.movable():
            while self._moves(process, hand):
                moved = True
                self.act(process, partial(process.worker_pool.move, hand))
        self._idle = self._idle and not moved
        return moved

    def _moves(self, process: Process, hand: Hand) -> bool:
        if (
            process.dead
            or hand not in process.worker_pool.hands
            or (hand.kept and hand.lease_runner.withdrawn)
        ):
            return False
        return hand.poisoned is None or hand.until <= self.now()

    def _leftover(self) -> Sequence[object]:
        return [
            (number, sorted(log.keys.keys() - log.durable - log.gone))
            for number, log in enumerate(self.ledger.logs)
        ]

    def _close(self) -> None:
        for process in list(self.processes):
            promise(
                not process.coordinator.partitions.lingering,
                f"{process.name} waits for handlers that have ended",
            )
            process.leave()
            process.finish()
            self.answers.check_reported(process.name)
        self.clock.advance(SESSION + 1)  # those who crashed are members until now
        promise(not self.backend.admin.group_members(GROUP), "members stay in the group when all have left")
        lag = self._lag()
        promise(not any(lag.values()), f"lag {lag} when all is finished")

    def _hides(self) -> bool:
        """Whether somebody died in a transaction that the broker hasn't ended yet: nobody sees what lies behind it."""
        return self.ledger.hides()

    def _lag(self) -> Mapping[int, int]:
        """How far the group's positions are from the logs' ends, where nothing is parked for ever."""
        with self.cluster.changed:
            stored = {place: value.offset or 0 for place, value in self.cluster.group(GROUP).offsets.items()}
        lag = {number: end - stored.get(self.home(number), 0) for number, end in self.ends().items()}
        self.ledger.look()  # the last stored state may name another checkpoint
        return {number: left for number, left in lag.items() if not self.ledger.for_ever(number)}


def simulate(
    seed: int,
    tell: Callable[[str], None] | None = None,
    *,
    retry: bool = False,
    variant: PlanVariant | None = None,
    kind: type[SimulatedWorld] = SimulatedWorld,
) -> Story:
    """Tells a seed's story; raises the broken promise. `focus` changes the plan: more of a kind of trouble."""
    logger = logging.getLogger("kafka_pubsub")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # failures on purpose need no lines
    world = kind(seed, tell, retry=retry, variant=variant)
    try:
        with scaled(world.plan), world.narrowed():
            world.live()
            world.grown_early = world.partitions > world.plan.partitions
            world.settle()
    finally:
        logger.setLevel(level)
    ledger = world.ledger
    return Story(
        seed,
        sum(len(log.keys) for log in ledger.logs),
        sum(owner.begun.total() for owner in ledger.ownerships.values()),
        len(ledger.ownerships),
        dict(world.answers.counts),
        world.grown_early,
    )
