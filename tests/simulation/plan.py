"""The seed's choices before the first step: the size of the world, and the events that may happen in it.

Theory. A schedule in which everything may happen at any time rarely gets deep into anything. So each seed switches
some kinds of trouble off and others up ("swarm testing"), and shrinks the limits - the room of the ack map, the
window, the buffer - until a few dozen messages reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from kafka_pubsub.log.memory import groups
from kafka_pubsub.subscribe import fetch_window
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.checkpoint import split
from kafka_pubsub.subscribe.partition import (
    checkpoint_schedule,
    commits,
    maintenance,
    next_move,
    outage,
    retry_partition,
    retry_state,
)
from kafka_pubsub.subscribe.partition.settings import Backoff, Policy, Rules
from kafka_pubsub.subscribe.retry_topic import checkpoint_reader as reading
from kafka_pubsub.subscribe.stream import runner
from kafka_pubsub.subscribe.takeover import listener
from tests.simulation.retry_plan import RetryPlan

__all__ = ["Plan", "PlanVariant", "scaled"]

#: How often each step of a healthy life is taken, beside each other.
LIFE = {"publish": 4.0, "fetcher": 14.0, "runner": 16.0, "callback": 40.0, "time": 8.0}
#: How often trouble comes, at its ordinary strength.
TROUBLE = {
    "crash": 0.3,
    "stall": 0.4,
    "join": 0.8,
    "leave": 0.3,
    "evict": 0.4,
    "hole": 0.5,
    "transaction": 0.5,
    "retention": 0.12,
    "compaction": 0.2,
}
#: The shares of worlds whose acks are exactly-once, and whose topic grows.
ASKING, GROWING = 0.25, 0.1
#: A retry topic without troubles of its own.
CALM = RetryPlan(Policy(), actions={"mover": 10.0})
#: The outcomes that a handler may choose for a message.
CONDUCT = {
    "ack": 60.0,
    "ack_early": 6.0,
    "ack_and_raise": 2.0,
    "ack_crosses": 4.0,
    "ack_twice": 2.0,
    "nack": 6.0,
    "nack_later": 3.0,
    "raise": 3.0,
    "silent": 8.0,
    "extend": 4.0,
    "extend_to_nothing": 1.0,
}


@dataclass(frozen=True)
class Plan:
    """Everything about a seed that holds for its whole run."""

    steps: int
    partitions: int
    processes: int
    keys: tuple[bytes | None, ...]
    rules: Rules
    #: Chance that a handler is slow; how slow is drawn up to three deadlines.
    slow: float
    max_messages: int
    max_bytes: int
    #: Records that a pool takes at once, and callbacks at a time.
    run: int
    workers: int
    read_limit: int
    #: Chances that a commit is refused, and that its answer is lost.
    refused: float
    answer_lost: float
    #: Characters of metadata that the group stores; records that may wait.
    capacity: int
    window: int
    #: Records in the log before the subscription is created.
    before: int
    actions: dict[str, float]
    conduct: dict[str, float]
    #: Whether the fetcher calls callbacks itself; and the chances that others move meanwhile, and that they take over.
    inline: bool
    beside: float
    taken_over: float
    retry: RetryPlan
    #: Chances that an ack asks for an answer, and that its callback waits for that. Above 0: acks are exactly-once.
    asks: float = 0.0
    waits: float = 0.0
    #: Partitions that the topic gets while the world lives on.
    grows: int = 0

    @classmethod
    def draw(cls, random: Random, *, retry: bool = False) -> Plan:
        """The seed's choices; `retry`: also about troubles of the retry topic, of which there are none else."""
        plan = cls._drawn(random)
        return plan._with_retries(random) if retry else plan

    def _with_retries(self, random: Random) -> Plan:
        """The same world with troubles of the retry topic."""
        retry = RetryPlan.draw(random, self.keys)
        plan = replace(
            self,
            retry=retry,
            steps=random.choice([30, 60, 100, 180]),
            actions={**self.actions, **retry.actions},
            rules=retry.rules(self.rules),
        )
        return plan.of_killers() if retry.killers_only else plan

    def of_killers(self) -> Plan:
        """No other trouble than that: whoever dies, dies of a message."""
        life = {name: weight for name, weight in self.actions.items() if name not in TROUBLE}
        life["join"] = 2.0
        return replace(
            self,
            actions=life,
            conduct={"ack": 1.0},
            slow=0.0,
            refused=0.0,
            answer_lost=0.0,
        )

    def with_more(self, random: Random) -> Plan:
        """The same world, in some seeds with exactly-once acks, a topic that grows, late commits or wrong clocks."""
        plan = self
        if random.random() < ASKING:
            plan = plan.asking(random.choice([0.3, 1.0]), random.choice([0.0, 0.3]))
        if random.random() < GROWING:
            plan = plan.growing(random.randint(1, 4))
        retry = plan.retry
        if not retry.killers_only:
            late, wrong = random.choice([0.0, 0.0, 0.05, 0.2]), random.choice([0.0, 0.0, 0.0, 1.0, 3600.0])
            plan = replace(plan, retry=replace(retry, late_commits=late, wrong_clocks=wrong))
            plan = replace(plan, actions={**plan.actions, "set_clock": 1.0 if wrong else 0.0})
        return plan

    def growing(self, partitions: int) -> Plan:
        """The same world with a topic that grows by so many partitions."""
        return replace(self, grows=partitions, actions={**self.actions, "grow": 1.0})

    def asking(self, asks: float, waits: float) -> Plan:
        """The same world with exactly-once acks."""
        return replace(self, asks=asks, waits=waits, rules=self.rules._replace(exactly_once=True))

    @classmethod
    def _drawn(cls, random: Random) -> Plan:
        calm = random.random() < 0.1
        strength = [0.0, 0.0] if calm else [0.0, 1.0, 1.0, 4.0]
        trouble = {name: weight * random.choice(strength) for name, weight in TROUBLE.items()}
        life = {name: weight * random.choice([0.5, 1.0, 2.0]) for name, weight in LIFE.items()}
        others = {
            name: weight * random.choice([0.0, 1.0, 1.0, 3.0])
            for name, weight in CONDUCT.items()
            if name != "ack"
        }
        hot = [b"a"] * random.choice([0, 4, 12])
        keys: list[bytes | None] = [b"k%d" % at for at in range(random.choice([1, 2, 4, 8, 20]))]
        return cls(
            steps=random.choice([60, 120, 240, 400]),
            partitions=random.randint(1, 4),
            processes=random.randint(1, 4),
            keys=(*hot, *keys, *[None] * random.choice([0, 0, 1, 4])),
            rules=Rules(
                ordered=random.random() > 0.06,
                ack_deadline=random.choice([2.0, 10.0]),
                max_extension=random.choice([0.0, 5.0, 60.0]),
                backoff=random.choice([Backoff(), Backoff(0.1, 2.0), Backoff(1.0, 8.0)]),
            ),
            slow=0.0 if calm else random.choice([0.0, 0.1, 0.4]),
            max_messages=random.choice([1, 2, 5, 20, 1000]),
            max_bytes=random.choice([600, 3_000, 10_000, 10_000_000]),
            run=random.choice([1, 2, 5, 128]),
            workers=random.choice([1, 3, 16]),
            read_limit=random.choice([1, 3, 10, 1000]),
            refused=0.0 if calm else random.choice([0.0, 0.0, 0.1, 0.5]),
            answer_lost=0.0 if calm else random.choice([0.0, 0.0, 0.1, 0.5]),
            capacity=random.choice([556, 560, 580, 650, 4095, 4095]),
            window=random.choice([8, 8, 2000, 2000]),
            before=random.choice([0, 0, 5]),
            actions={**life, **trouble, **CALM.actions},
            conduct={"ack": CONDUCT["ack"], **({} if calm else others)},
            inline=random.random() < 0.6,
            beside=random.choice([0.0, 0.1, 0.3]),
            taken_over=random.choice([0.0, 0.3, 0.6]),
            retry=CALM,
        )


#: Makes of a drawn plan a plan in which something happens more often.
PlanVariant = Callable[[Plan], Plan]


@contextmanager
def scaled(plan: Plan) -> Iterator[None]:
    """The world's limits, shrunk to the plan's while it runs."""
    beside = plan.retry
    limits: list[tuple[object, str, object]] = [
        (ack_map, "CAPACITY", plan.capacity),
        (groups, "METADATA_LIMIT", plan.capacity),
        (fetch_window, "WINDOW", plan.window),
        (runner, "POSTED", 2),
        (runner, "LEAST_READ", min(500, max(1, plan.window // 4))),
        (listener, "TRY_AGAIN", 0.0),
        (reading, "_PATIENCE", 0.0),
        (retry_state, "BACKLOG", beside.backlog),
        (maintenance, "BACKLOG", beside.backlog),
        (outage, "ENOUGH", beside.enough),
        (next_move, "LONGEST_DELAY", 20.0),
        (retry_partition, "TRIM", beside.trim),
    ]
    if plan.capacity < 4095:
        limits += [(checkpoint_schedule, "EVERY", 3.0), (commits, "split", partial(split, most=5))]
    before = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, value in limits:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


#: Seconds between commits, for callers that want to wait until a commit is due.
COMMIT_INTERVAL = commits.COMMIT_INTERVAL
