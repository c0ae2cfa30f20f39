"""One round: publishers and consumers run, a fault strikes, everything settles, the histories are judged.

Theory: the driver only starts, breaks and waits; what is judged afterwards is what the processes wrote down. Settled
means: all publishers have flushed, and the subscription's lag is 0.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from kafka_pubsub import PubSub, RetryPolicy, Subscription
from kafka_pubsub.observe.history import HistoryFile
from tests.faults.arena import Arena
from tests.faults.check import judge, prove, read
from tests.faults.crew import Crew
from tests.faults.faults import FAULTS, NotBuilt, Stage
from tests.faults.plan import ConsumerPlan, PublisherPlan, RoundPlan
from tests.faults.watcher import Sight

__all__ = ["Outcome", "run_round"]

#: Seconds until the first message has come through; the start of the processes on a busy machine included.
WARM_UP = 120.0
#: Seconds that a lease lasts: short, so that a handler that hangs loses it within a round.
ACK_DEADLINE = 2.0
#: Seconds that a handler may go on: slow ones are to meet rebalances, not their deadline; those that hang do.
MAX_EXTENSION, MAX_EXTENSION_OF_HANGING = 60.0, 1.0
#: Seconds between nack and redelivery.
RETRY = RetryPolicy(min_backoff=0.05, max_backoff=1.0)
#: Seconds that slow handlers take at most.
SLOW = 1.5
#: Numbers of the messages of each publisher that are poison; early, so that their end is seen in a short round.
POISONED = (40, 90)


@dataclass
class Outcome:
    """What a round has shown; no `problems`: all is well."""

    plan: RoundPlan
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    bursts: list[str] = field(default_factory=list)
    #: Seconds from the last publishing to lag 0.
    settled_in: float | None = None


def run_round(plan: RoundPlan, arena: Arena, folder: Path) -> Outcome:
    """Runs it in `folder`, which keeps the histories; `NotBuilt` when the fault can't be made yet."""
    missing = FAULTS[plan.fault].missing
    if missing is not None:
        raise NotBuilt(missing)
    with PubSub(arena.bootstrap) as ps:
        played = _Round(plan, arena, folder, ps)
        try:
            played.play()
        finally:
            played.close()
    verdict = judge(read(folder))
    outcome = played.outcome
    outcome.problems += played.crew.findings + verdict.problems + prove(folder)
    outcome.counts = {**verdict.counts, "deaths": played.crew.deaths}
    return outcome


class _Round:
    """A round on its way: its topic, its subscription, its processes."""

    def __init__(self, plan: RoundPlan, arena: Arena, folder: Path, ps: PubSub) -> None:
        self._plan, self._arena, self._folder = plan, arena, folder
        self._fault = FAULTS[plan.fault]
        self._topic = f"faults-{uuid.uuid4().hex[:12]}"
        self._deaths = folder / "deaths"
        self._deaths.mkdir()
        self._subscription = self._subscribe(ps)
        self._driver = HistoryFile(
            folder / "driver.jsonl", role="driver", topic=self._topic, subscription=self._subscription.name
        )
        self._driver.subscribe(dict.fromkeys(range(plan.partitions), 0))
        self.crew = Crew(folder, self._driver, self._consumer)
        self.outcome = Outcome(plan)

    def play(self) -> None:
        """From the first process to the last."""
        for slot in range(self._plan.consumers):
            self.crew.start(slot)
        for number in range(self._plan.publishers):
            self.crew.start_publisher(self._publisher(number))
        if not self._warmed_up():
            self.outcome.problems.append(f"nothing was delivered within {WARM_UP:.0f} s")
            return
        stage = Stage(self._arena, self.crew, self._driver, time.monotonic() + self._plan.seconds)
        try:
            self._fault.run(stage, self._plan.seed)
        finally:
            self.outcome.bursts = stage.done
        self.crew.end_publishers()
        self._settle()
        self.crew.retire_all()

    def close(self) -> None:
        """Nothing goes on."""
        self.crew.close()
        self._driver.close()

    def _subscribe(self, ps: PubSub) -> Subscription:
        topic = ps.create_topic(self._topic, partitions=self._plan.partitions, message_ordering=True)
        hangs = self._fault.poison == "hangs"
        return ps.create_subscription(
            f"{self._topic}-s",
            topic,
            message_ordering=True,
            ack_deadline=ACK_DEADLINE,
            max_extension=MAX_EXTENSION_OF_HANGING if hangs else MAX_EXTENSION,
            retry=RETRY,
        )

    def _warmed_up(self) -> bool:
        """Whether a message has come through."""
        until = time.monotonic() + WARM_UP
        while time.monotonic() < until:
            self.crew.revive()
            for path in self._folder.glob("consumer-*.jsonl"):
                with path.open("rb") as file:
                    if b'"handler_end"' in file.read(8192):
                        return True
            time.sleep(0.1)
        return False

    def _settle(self) -> None:
        """Waits for lag 0."""
        began = time.monotonic()
        sight: Sight | None = None
        while time.monotonic() < began + self._plan.settle:
            self.crew.revive()
            sight = self.crew.watch(self._arena.bootstrap, self._subscription.name)
            if sight is not None and sight.lag == 0:
                self.outcome.settled_in = round(time.monotonic() - began, 1)
                return
            time.sleep(0.1)
        seen = "nothing was seen" if sight is None else sight.text
        self.outcome.problems.append(f"not settled after {self._plan.settle:.0f} s: {seen}")

    @property
    def _bootstrap(self) -> str:
        return self._arena.detour if self._fault.detour else self._arena.bootstrap

    def _consumer(self, slot: int, number: int, path: Path) -> ConsumerPlan:
        return ConsumerPlan(
            bootstrap=self._bootstrap,
            topic=self._topic,
            history=str(path),
            seed=self._plan.seed * 1_000_003 + 1000 * slot + number,
            subscription=self._subscription.name,
            nack_percent=self._plan.nack_percent,
            slow_percent=self._fault.slow_percent,
            slow_handler=SLOW,
            poison=self._fault.poison,
            deaths=str(self._deaths),
        )

    def _publisher(self, number: int) -> PublisherPlan:
        plan = self._plan
        return PublisherPlan(
            bootstrap=self._bootstrap,
            topic=self._topic,
            history=str(self._folder / f"publisher-{number}.jsonl"),
            seed=plan.seed * 7919 + number,
            name=f"p{number}",
            rate=plan.rate / plan.publishers,
            # It is ended when the fault is over; warming up comes on top.
            seconds=plan.seconds + WARM_UP + plan.settle,
            keys=plan.keys,
            poisoned=POISONED if self._fault.poison else (),
        )
