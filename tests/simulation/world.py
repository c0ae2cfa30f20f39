"""A whole world from one number: the log, the group, the processes, and what befalls them.

Theory. Everything that can happen is an action; a seeded generator chooses one after the other. Nothing else is
random, nothing takes real time, so a seed is a story that can be told again. When the story is over the world
calms down: nothing fails any more, handlers ack, and everything has to settle.

Rules
1. No healthy process is silent for longer than a third of its session, however far time jumps.
2. A process that crashes takes everything with it; one that stalls goes on later where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from kafka_pubsub.config import DeadLetterPolicy, RetryTopic, SubscriptionOptions, SubscriptionRecord
from kafka_pubsub.core.partitioner import partition_of
from kafka_pubsub.memory import MemoryBackend, VirtualClock
from kafka_pubsub.model import TopicPartition
from tests.simulation.ledger import Ledger, promise
from tests.simulation.plan import ATTEMPTS, Plan, scaled
from tests.simulation.process import SESSION, Process
from tests.simulation.retry import GRAVES, RETRY, RetryLedger

__all__ = ["Story", "simulate"]

TOPIC, GROUP = "orders", "billing"
#: Rounds of the calm at the end, a virtual second each; backoff, deadlines and sessions add up to a minute.
SETTLING = 300


@dataclass(frozen=True)
class Story:
    """What a seed that held told."""

    seed: int
    published: int
    deliveries: int
    ownerships: int


class SimulatedWorld:
    """One seed's world."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None, *, retry: bool = False) -> None:
        self.random = Random(seed)
        self.plan = plan = Plan.draw(self.random, retry=retry)
        self.calm = False
        self._tell = tell
        self._clock = VirtualClock(1000.0)
        self.backend = MemoryBackend(self._clock)
        self.cluster = self.backend.cluster
        self.ledger = self._make_ledger(plan)
        self.processes: list[Process] = []
        self._born = self._transactions = 0
        self._open: list[tuple[int, str, list[int]]] = []
        self._actions = [name for name, weight in plan.actions.items() if weight]
        self._weights = list(accumulate(plan.actions[name] for name in self._actions))
        self._conducts = [name for name, weight in plan.conduct.items() if weight]
        self._conduct_weights = list(accumulate(plan.conduct[name] for name in self._conducts))
        self._create()

    def _make_ledger(self, plan: Plan) -> Ledger:
        ordered = plan.rules.ordered
        if not plan.retry:
            return Ledger(plan.partitions, ordered=ordered)
        return RetryLedger(
            plan.partitions, ordered=ordered, cluster=self.cluster, group=GROUP, attempts=ATTEMPTS
        )

    def _create(self) -> None:
        plan = self.plan
        info = self.backend.admin.create_topic(TOPIC, plan.partitions, None, {})
        for _ in range(plan.before):
            self._append(self.random.choice(plan.keys))
        ends = self.backend.admin.last_stable_offsets(TOPIC)
        self.starts = [ends[number] for number in range(plan.partitions)]
        record = SubscriptionRecord(
            name=GROUP,
            topic=TOPIC,
            topic_id=info.topic_id,
            partitions=plan.partitions,
            options=SubscriptionOptions(message_ordering=plan.rules.ordered),
            positions=dict(ends),
        )
        places = {TopicPartition(TOPIC, number): end for number, end in ends.items()}
        if plan.retry:
            record = self._beside(record)
            places |= {TopicPartition(RETRY, number): 0 for number in ends}
        self.backend.catalog.put_subscription(record, None)
        self.backend.admin.set_positions(GROUP, places)
        for number, start in enumerate(self.starts):
            self.ledger.subscribed(number, start)

    def _beside(self, record: SubscriptionRecord) -> SubscriptionRecord:
        """The subscription with a retry topic, and perhaps dead letters."""
        info = self.backend.admin.create_topic(RETRY, self.plan.partitions, None, {})
        self.backend.admin.create_topic(GRAVES, 1, None, {})
        retry = RetryTopic(
            name=RETRY, topic_id=info.topic_id, positions=dict.fromkeys(range(self.plan.partitions), 0)
        )
        dead = DeadLetterPolicy(topic=GRAVES) if self.plan.rules.policy.max_attempts else None
        options = record.options.model_copy(update={"dead_letter": dead})
        return record.model_copy(update={"retry_topic": retry, "options": options})

    # What processes see

    def now(self) -> float:
        return self._clock.now()

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

    def say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.now() - 1000:9.3f} {text}")

    def time_passes(self, seconds: float) -> None:
        self._clock.advance(seconds)

    # The story

    def live(self) -> None:
        """Action after action."""
        self.join()
        acts = {name: getattr(self, name) for name in self._actions}
        for name in self.random.choices(self._actions, cum_weights=self._weights, k=self.plan.steps):
            acts[name]()
            self._look()

    def _look(self) -> None:
        if isinstance(self.ledger, RetryLedger):
            self.ledger.look(self.now())

    def mover(self) -> None:
        if (process := self._any("mover")) is not None:
            process.mover()

    def go_on(self, steps: int) -> None:
        """Some of a healthy life, and a removal now and then, while a callback runs that was taken over."""
        for act in self.random.choices(
            ["fetcher", "runner", "handler", "time", "publish", "evict"], [9, 9, 9, 3, 3, 1], k=steps
        ):
            getattr(self, act)()

    def _any(self, part: str) -> Process | None:
        healthy = [process for process in self.processes if process.moves(part)]
        return self.random.choice(healthy) if healthy else None

    def publish(self) -> None:
        for _ in range(self.random.choice([1, 1, 3, 8])):
            self._append(self.random.choice(self.plan.keys))

    def _append(self, key: bytes | None, transaction: str | None = None) -> tuple[int, int]:
        count = self.plan.partitions
        number = self.random.randrange(count) if key is None else partition_of(key, count)
        record = self.cluster.append(TOPIC, number, b"x" * 8, key, transaction=transaction)
        offset = record.offset()
        assert offset is not None
        self.ledger.published(number, offset, key)
        return number, offset

    def fetcher(self) -> None:
        if (process := self._any("fetcher")) is not None:
            process.fetcher()
            self._perhaps_finish(process)

    def runner(self) -> None:
        if (process := self._any("runner")) is not None:
            process.runner()

    def handler(self) -> None:
        process = self._any("handler")
        hands = process.crew.movable() if process is not None else []
        if process is not None and hands:
            process.crew.move(self.random.choice(hands))

    def time(self) -> None:
        left = self.random.choice([0.01, 0.05, 0.1, 0.1, 0.1, 0.3, 1.0, 3.0, 12.0])
        while left > 0:
            step = min(left, SESSION / 3)
            self._clock.advance(step)
            left -= step
            for process in list(self.processes):
                if process.moves("fetcher"):
                    process.fetcher()
                    self._perhaps_finish(process)

    # Trouble

    def join(self) -> None:
        if len(self.processes) < self.plan.processes:
            self._born += 1
            mode = self.random.choice(["walk", "walk", "walk", "batch", "mailbox"])
            process = Process(self, f"p{self._born}", mode)
            self.say(f"{process.name} joins ({mode})")
            self.processes.append(process)

    def crash(self) -> None:
        if self.processes:
            process = self.random.choice(self.processes)
            self.say(f"{process.name} crashes")
            self.processes.remove(process)

    def stall(self) -> None:
        if self.processes:
            process = self.random.choice(self.processes)
            everything = {"fetcher", "runner", "handler", "mover"}
            process.stalled = frozenset(
                self.random.choice([everything, {"fetcher"}, {"fetcher", "runner"}, {"handler"}])
            )
            process.stalled_until = self.now() + self.between(0.5, 3 * SESSION)
            self.say(
                f"{process.name} stalls until {process.stalled_until - 1000:.3f}: {sorted(process.stalled)}"
            )

    def leave(self) -> None:
        process = self._any("fetcher")
        if process is not None and process.patience is None:
            self.say(f"{process.name} begins to close")
            process.leave()

    def _perhaps_finish(self, process: Process) -> None:
        if process.patience is not None and (process.crew.close(0) or self.now() >= process.patience):
            self.say(f"{process.name} leaves")
            process.finish()
            self.processes.remove(process)

    def evict(self) -> None:
        if self.processes:
            name = self.random.choice(self.processes).name
            self.say(f"{name} is removed from the group")
            self.cluster.evict(GROUP, name)

    def hole(self) -> None:
        self.cluster.skip_offsets(
            TOPIC, self.random.randrange(self.plan.partitions), self.random.choice([1, 1, 5])
        )

    def transaction(self) -> None:
        """Another producer's transaction begins, or ends one way or the other."""
        if self._open and self.chance(0.6):
            self._end_transaction(self.chance(0.6))
            return
        self._transactions += 1
        name = f"t{self._transactions}"
        written: dict[int, list[int]] = {}
        for _ in range(self.random.choice([1, 3])):
            number, offset = self._append(self.random.choice(self.plan.keys), name)
            written.setdefault(number, []).append(offset)
        self._open += [(number, name, offsets) for number, offsets in written.items()]

    def _end_transaction(self, committed: bool) -> None:
        number, name, offsets = self._open.pop(self.random.randrange(len(self._open)))
        self.cluster.finish_transaction(TOPIC, number, name, committed)
        if not committed:
            self.ledger.logs[number].gone.update(offsets)

    def retention(self) -> None:
        number = self.random.randrange(self.plan.partitions)
        if any(number == open_one[0] for open_one in self._open):
            return  # a broker keeps the segment of an open transaction
        info = self.backend.admin.last_stable_offsets(TOPIC)[number]
        before = self.random.randint(0, info)
        self.say(f"retention takes {number} up to {before}")
        self.cluster.truncate(TOPIC, number, before)
        log = self.ledger.logs[number]
        log.gone.update(offset for offset in log.keys if offset < before)

    def compaction(self) -> None:
        number = self.random.randrange(self.plan.partitions)
        log = self.ledger.logs[number]
        in_transaction = {offset for n, _, offsets in self._open if n == number for offset in offsets}
        taken = [offset for offset in log.keys if offset not in in_transaction and self.chance(0.3)]
        self.say(f"compaction takes {taken} of {number}")
        self.cluster.compact(TOPIC, number, taken)
        log.gone.update(taken)

    def forget(self) -> None:
        if self.backend.admin.group_members(GROUP):
            return
        self.say("the broker forgets the group's positions")
        self.cluster.forget_offsets(GROUP)
        copy = self.record().positions
        for number in range(self.plan.partitions):
            self.ledger.forgotten(number, copy[number])

    # The end

    def settle(self) -> None:
        """Nothing fails any more: everything has to be finished, and known to be."""
        self.calm = True
        self.say("the world calms down")
        while self._open:
            self._end_transaction(committed=True)
        for process in [each for each in self.processes if each.patience is not None]:
            process.patience = self.now()
        self._finish_all()
        for number in range(self.plan.partitions):  # a last record, so that no hole ends the log
            record = self.cluster.append(TOPIC, number, b"the end", b"end%d" % number)
            self.ledger.published(number, record.offset() or 0, b"end%d" % number)
        self._finish_all()
        self.ledger.check_nothing_lost(self.starts)
        self._close()

    def _finish_all(self) -> None:
        # After a crash a suspect's turn takes some seconds, one after the other.
        suspects = 4 * sum(len(log.keys) for log in self.ledger.logs) if self.plan.retry else 0
        for _ in range(SETTLING + suspects):
            if not self.processes:
                self.join()
            self._round()
            if self.ledger.settled() and not any(p.coordinator.in_flight() for p in self.processes):
                break
        promise(self.ledger.settled(), f"lost: not settled after {SETTLING} seconds: {self._leftover()}")

    def _round(self) -> None:
        self._clock.advance(1.0)
        for process in list(self.processes):
            process.fetcher()
            self._perhaps_finish(process)
        for process in self.processes:
            for _ in range(4):
                process.runner()
                for _ in range(60):
                    process.mover()
                self._look()
                for hand in process.crew.movable():
                    while hand in process.crew.hands and not (hand.kept and hand.holder.withdrawn):
                        process.crew.move(hand)
            process.runner()

    def _leftover(self) -> Sequence[object]:
        return [
            (number, sorted(log.keys.keys() - log.durable - log.gone))
            for number, log in enumerate(self.ledger.logs)
        ]

    def _close(self) -> None:
        for process in self.processes:
            promise(not process.coordinator._lingering, f"{process.name} waits for handlers that have ended")
            process.leave()
            process.finish()
        self._clock.advance(SESSION + 1)  # those who crashed are members until now
        promise(not self.backend.admin.group_members(GROUP), "members stay in the group when all have left")
        stored = self.backend.admin.group_offsets(GROUP, TOPIC)
        ends = self.backend.admin.last_stable_offsets(TOPIC)
        lag = {number: end - (stored[number].offset or 0) for number, end in ends.items()}
        promise(not any(lag.values()), f"lag {lag} when all is finished")


def simulate(seed: int, tell: Callable[[str], None] | None = None, *, retry: bool = False) -> Story:
    """Tells one seed's story; raises what it broke."""
    logger = logging.getLogger("kafka_pubsub")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # what fails on purpose needs no lines
    world = SimulatedWorld(seed, tell, retry=retry)
    try:
        with scaled(world.plan):
            world.live()
            world.settle()
    finally:
        logger.setLevel(level)
    ledger = world.ledger
    return Story(
        seed,
        sum(len(log.keys) for log in ledger.logs),
        sum(owner.begun.total() for owner in ledger.ownerships.values()),
        len(ledger.ownerships),
    )
