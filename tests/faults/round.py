"""A single round: publishers and consumers run, a fault strikes, everything settles, the histories are judged.

Theory: the driver only starts, breaks and waits; what is judged afterwards is what the processes wrote down, and the
dead letters. Settled means: all publishers have flushed, everything that was stored was acked or is a dead letter, and
the log has it that nothing is left.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kafka_pubsub import DeadLetterPolicy, PubSub, RetryPolicy, Subscription
from kafka_pubsub.history.history import HistoryFile
from kafka_pubsub.topics.names import retry_topic
from tests.faults.arena import Arena
from tests.faults.check import histories, judge, prove
from tests.faults.children import Children
from tests.faults.dead_letter_reader import SILENCE, DeadLetterReader
from tests.faults.faults import FAULTS, Fault, Stage
from tests.faults.plan import ConsumerPlan, PublisherPlan, RoundPlan
from tests.faults.progress import Progress, place_of
from tests.faults.together import Together
from tests.faults.watcher import Sight

__all__ = ["Outcome", "run_round"]

#: Seconds until the first message has come through; the start of the processes on a busy machine included.
WARM_UP = 120.0
#: Seconds that a lease lasts.
ACK_DEADLINE = 2.0
#: Seconds that a handler may go on: slow ones are to meet rebalances, not their deadline; those that hang do. Longer
#: where both are about.
MAX_EXTENSION, OF_HANGING, OF_BOTH = 60.0, 1.0, 6.0
#: Seconds that those who hang take beyond both.
TOO_LONG = 1.5
#: Deliveries after which a message is given up.
ATTEMPTS = 5
DEAD_PARTITIONS = 2
#: Seconds between nack and redelivery.
RETRY = RetryPolicy(min_backoff=0.05, max_backoff=1.0)
#: Seconds that slow handlers take at most.
SLOW = 1.5
#: Priorities, and per cent of messages that are delayed, in a round of all together.
PRIORITIES, DELAYED = 3, 25.0


@dataclass
class Outcome:
    """What a round has shown; no `problems`: all is well."""

    plan: RoundPlan
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    bursts: dict[str, int] = field(default_factory=dict)
    #: Seconds from the last publishing until nothing was left to do.
    settled_in: float | None = None
    #: Seconds that a partition stood still at most although messages waited in it.
    stall: float = 0.0
    #: What the history checker counted: redeliveries by cause among it.
    proved: dict[str, int] = field(default_factory=dict)


def run_round(plan: RoundPlan, arena: Arena, folder: Path, fault: Fault | None = None) -> Outcome:
    """Runs it in `folder`, which keeps the histories; `fault` takes the place of the one that the plan names."""
    fault = fault or FAULTS[plan.fault]
    with PubSub(arena.bootstrap) as ps:
        played = _Round(plan, arena, folder, ps, fault)
        try:
            played.play()
        finally:
            played.close()
    outcome = played.outcome
    judgement = judge(
        histories(played.told).values(),
        played.dead_letter_reader.found,
        poison=played.poison,
        longest_stall=fault.longest_stall,
    )
    proved = prove(played.told)
    outcome.problems += played.children.findings + judgement.problems + proved.problems
    if played.together is not None:
        outcome.problems += played.together.problems
    outcome.counts = {
        **judgement.counts,
        **({} if played.together is None else played.together.counts),
        "deaths": played.children.deaths,
        "in_transaction": played.in_transaction,
    }
    outcome.proved = proved.counts
    outcome.stall = round(judgement.stall, 1)
    return outcome


class _Round:
    """A round on its way: its topic, its subscription, its processes."""

    def __init__(self, plan: RoundPlan, arena: Arena, folder: Path, ps: PubSub, fault: Fault) -> None:
        self._plan, self._arena, self._folder, self._fault = plan, arena, folder, fault
        self._topic = f"faults-{uuid.uuid4().hex[:12]}"
        self._dead = f"{self._topic}-dead"
        self.told = folder / "told"
        self.told.mkdir()
        self._deaths = folder / "deaths"
        self._deaths.mkdir()
        self._subscription = self._subscribe(ps)
        self.together = self._others(ps) if self._fault.together else None
        self.dead_letter_reader = DeadLetterReader(arena.bootstrap, self._dead, DEAD_PARTITIONS)
        self._progress = Progress(self.told)
        self._driver = HistoryFile(
            self.told / "driver.jsonl", role="driver", topic=self._topic, subscription=self._subscription.name
        )
        self._driver.subscribe(dict.fromkeys(range(plan.partitions), 0))
        self.children = Children(folder, self._driver, self._consumer)
        self.outcome = Outcome(plan)

    def play(self) -> None:
        """From the first process to the last."""
        for slot in range(self._plan.consumers):
            self.children.start(slot)
        for number in range(self._plan.publishers):
            self.children.start_publisher(self._publisher(number))
        if not self._warmed_up():
            self.outcome.problems.append(f"nothing was delivered within {WARM_UP:.0f} s")
            return
        until = time.monotonic() + self._plan.seconds
        retry = retry_topic(self._topic, self._subscription.name)
        services = None if self.together is None else self.together.services
        stage = Stage(self._arena, self.children, self._driver, until, retry, self._dead, services)
        try:
            self._fault.run(stage, self._plan.seed, self._plan.calm)
        finally:
            self.outcome.bursts = dict(Counter(stage.done))
        self.children.end_publishers()
        if self.together is not None:
            self.together.settle(self._plan.settle)
        self._settle()
        self.children.retire_all()
        self.dead_letter_reader.look(SILENCE)

    def close(self) -> None:
        """Nothing goes on."""
        self.children.close()
        if self.together is not None:
            self.together.close()
        self.dead_letter_reader.close()
        self._driver.close()

    @property
    def poison(self) -> set[str]:
        """The fingerprints of all poison."""
        return {each for path in self._folder.glob("*.poison") for each in path.read_text("ascii").split()}

    @property
    def in_transaction(self) -> int:
        """How many consumers died inside a transaction because they were asked to."""
        return sum(1 for _ in self._deaths.glob("in-transaction-*"))

    def _subscribe(self, ps: PubSub) -> Subscription:
        topic = ps.create_topic(
            self._topic,
            partitions=self._plan.partitions,
            message_ordering=True,
            priorities=self._priorities,
        )
        ps.create_topic(self._dead, partitions=DEAD_PARTITIONS)
        return ps.create_subscription(
            f"{self._topic}-s",
            topic,
            message_ordering=True,
            ack_deadline=ACK_DEADLINE,
            max_extension=self._extension,
            retry=RETRY,
            dead_letter=DeadLetterPolicy(topic=self._dead, max_attempts=ATTEMPTS),
        )

    @property
    def _priorities(self) -> int:
        return PRIORITIES if self._fault.together else 1

    def _others(self, ps: PubSub) -> Together:
        plan, topic = self._plan, ps.topic(self._topic)
        return Together(self._arena.bootstrap, self._folder, topic, plan.partitions, plan.seed)

    def _warmed_up(self) -> bool:
        """Whether a message has come through."""
        until = time.monotonic() + WARM_UP
        while time.monotonic() < until:
            self._progress.look()
            if self._progress.acked:
                return True
            time.sleep(0.1)
        return False

    @property
    def _extension(self) -> float:
        if "hangs" not in self._fault.poison:
            return MAX_EXTENSION
        return OF_BOTH if self._fault.slow_percent else OF_HANGING

    def _settle(self) -> None:
        """Waits until everything is acked or a dead letter, and the log knows it."""
        began = time.monotonic()
        sight: Sight | None = None
        left: set[int] = set()
        while time.monotonic() < began + self._plan.settle:
            sight = self.children.watch(self._arena.bootstrap, self._subscription.name)
            self._progress.look()
            self.dead_letter_reader.look()
            left = self._progress.unfinished(
                {place_of(*each.origin) for each in self.dead_letter_reader.found}
            )
            if not left and sight is not None and sight.left == 0:
                self.outcome.settled_in = round(time.monotonic() - began, 1)
                return
            time.sleep(0.2)
        self.children.question()
        seen = "nothing was seen" if sight is None else sight.text
        some = [(place >> 48, place & ((1 << 48) - 1)) for place in sorted(left)[:5]]
        self.outcome.problems.append(
            f"not settled after {self._plan.settle:.0f} s: {seen}; {len(left)} not finished, such as {some}"
        )

    @property
    def _bootstrap(self) -> str:
        return self._arena.detour if self._fault.detour else self._arena.bootstrap

    def _consumer(self, slot: int, number: int, path: Path) -> ConsumerPlan:
        return ConsumerPlan(
            bootstrap=self._bootstrap,
            topic=self._topic,
            told=str(self.told),
            ready=str(path),
            seed=self._plan.seed * 1_000_003 + 1000 * slot + number,
            subscription=self._subscription.name,
            nack_percent=self._plan.nack_percent,
            slow_percent=self._fault.slow_percent,
            slow_handler=SLOW,
            hang=max(ACK_DEADLINE, self._extension) + TOO_LONG,
            deaths=str(self._deaths),
        )

    def _publisher(self, number: int) -> PublisherPlan:
        plan = self._plan
        return PublisherPlan(
            bootstrap=self._bootstrap,
            topic=self._topic,
            told=str(self.told),
            ready=str(self._folder / f"publisher-{number}.ready"),
            seed=plan.seed * 7919 + number,
            name=f"p{number}",
            rate=plan.rate / plan.publishers,
            # It is ended when the fault is over; warming up comes on top.
            seconds=plan.seconds + WARM_UP + plan.settle,
            keys=plan.keys,
            poison=self._fault.poison[number:] + self._fault.poison[:number],
            poison_every=plan.poison_every,
            priorities=self._priorities,
            delayed_percent=DELAYED if self._fault.together else 0.0,
        )
