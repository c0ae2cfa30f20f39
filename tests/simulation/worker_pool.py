"""A pool whose handlers follow the seed, one small step at a time.

Theory. `ScriptedWorkers` keeps the holders that the client gives it and moves a holder when told to: begin a message,
use its verbs, end the callback, or say something long after. Its reports to the client are those of the thread pool,
the batch pool and the pull queue (`thread_workers.py`, `pull_queue.py`); its reports to
the ledger are the handler's view.

Rules
1. A walking pool lets the fetcher call the callback itself (`subscribe/workers/inline_runner.py`). Everything else that
   happens while such a callback runs, a take-over too, happens inside it: the world takes some steps before the
   callback goes on.
2. A report is *late* when the message has one already or its lease is over; each is counted, to be found again
   in the stream's `stale`.
3. When the world is `calm`, handlers ack at once and nobody is silent. Poison is poison still.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_pubsub.model import AckFuture, Message
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport
from kafka_pubsub.subscribe.partition.leases import Lease, LeaseState
from kafka_pubsub.subscribe.workers.inline_runner import InlineLeaseRunner
from kafka_pubsub.subscribe.workers.lease_runner import ACKED, PENDING, BatchLeaseRunner, LeaseRunner, Reports
from kafka_pubsub.subscribe.workers.thread_workers import Callback, Inline
from tests.simulation.ledger import promise
from tests.simulation.plan import Plan

__all__ = ["Hand", "ScriptedWorkers", "Stage"]


class Stage(Protocol):
    """A pool's view of the world around it."""

    plan: Plan

    @property
    def calm(self) -> bool: ...
    def now(self) -> float: ...
    def chance(self, probability: float) -> bool: ...
    def choose_conduct(self) -> str: ...
    def between(self, low: float, high: float) -> float: ...
    def say(self, text: str) -> None: ...
    def alive(self) -> None:
        """Raises `Died` unless the process lives."""

    def meanwhile(self) -> None:
        """Steps of the world while an inline callback runs."""

    def begins(self, lease: Lease, message: Message, together: Sequence[int]) -> None: ...
    def poison(self, lease: Lease, message: Message) -> str | None:
        """The message's effect on its handlers, if any (`retry_plan.KINDS`)."""

    def acked(self, lease: Lease, offsets: Iterable[int]) -> None: ...
    def ask(self, lease: Lease, message: Message) -> AckFuture:
        """The message's ack, with an answer."""

    def make_way(self) -> None:
        """An inline callback waits for an answer."""


@dataclass(eq=False)
class Hand:
    """A holder, with the callback that walks it or the user who kept its message."""

    lease_runner: LeaseRunner
    #: False while the holder waits for a worker.
    working: bool = False
    #: Messages with the callback; empty between two of them.
    messages: list[Message] = field(default_factory=list)
    conduct: str = ""
    #: The callback ends no earlier.
    until: float = 0.0
    kept: bool = False
    #: Kept for ever, without a word: only its deadline ends that.
    mute: bool = False
    #: With the fetcher, until that is taken over; and whether the holder was begun there.
    inline: bool = False
    fetched: bool = False
    #: The first of its messages that no handler can take, by its number.
    poisoned: int | None = None
    #: The answer that its callback waits for.
    answer: AckFuture | None = None

    @property
    def waits(self) -> bool:
        """Whether its callback can't go on."""
        return self.answer is not None and not self.answer.done()

    @property
    def lease(self) -> Lease:
        return self.lease_runner.lease

    def __repr__(self) -> str:
        return f"{self.lease!r}"


class ScriptedWorkers:
    """Runs callbacks that are a script. `mode`: "walk", "batch" or "pull queue"."""

    spread = False

    def __init__(self, stage: Stage, reports: Reports, mode: str) -> None:
        self.run = 1 if mode == "pull queue" else stage.plan.run
        self.spread = mode == "batch"
        self.hands: list[Hand] = []
        #: Reports that came too late.
        self.late = 0
        self._stage = stage
        self._reports = reports
        self._mode = mode
        #: Messages that somebody waits for, in a pull queue.
        self.wanted = 0
        #: Whether the fetcher is walking, and the broken promises of inline callbacks, which no callback can raise.
        self._lent = False
        #: Where leases go that the fetcher takes itself, and holders that it had when it was taken over.
        self._aside: deque[LeaseRunner] | None = None
        self._adopted: set[LeaseRunner] = set()
        self.callback: Callback = self._call
        self._broken: BaseException | None = None

    # The fetcher's session

    @property
    def inline(self) -> Inline | None:
        return self if self._mode == "walk" and self._stage.plan.inline else None

    def spares(self) -> bool:
        return self._working() - self._lent < self._stage.plan.workers

    def busy(self) -> int:
        # No hand moves while the fetcher waits for it: moves of real threads are left to chance.
        return 0 if self._stage.chance(0.5) else self._working() - self._lent

    def put_aside(self, aside: deque[LeaseRunner] | None) -> None:
        self._aside = aside
        if aside is not None:
            waiting = [hand for hand in self.hands if not hand.working and not hand.kept]
            aside.extend(hand.lease_runner for hand in waiting)
            self.hands = [hand for hand in self.hands if hand not in waiting]

    def queue(self, lease_runners: Iterable[LeaseRunner]) -> None:
        self.hands += [Hand(lease_runner) for lease_runner in lease_runners]

    def lend(self, lent: bool) -> None:
        self._lent = lent

    def adopt(self, lease_runner: LeaseRunner, thread: threading.Thread) -> None:
        self._adopted.add(lease_runner)
        for hand in self.hands:
            if hand.lease_runner is lease_runner:
                hand.inline = False

    def _call(self, message: Message) -> None:
        """A callback on the fetcher, from its begin to its end."""
        self._stage.alive()
        self.sort()
        lease_runner = message._sink
        assert isinstance(lease_runner, LeaseRunner)
        inline = lease_runner not in self._adopted
        hand = Hand(lease_runner, working=True, messages=[message], inline=inline, fetched=True)
        try:
            self.hands.append(hand)
            self._check_alone(hand)
            promise(self._working() <= self._stage.plan.workers, "more callbacks at a time than workers")
            self._stage.begins(hand.lease, message, ())
            self._choose(hand)
            if hand.waits:
                self._stage.make_way()
            elif not self._stage.calm:
                self._stage.meanwhile()
            self._stage.alive()
            self._use_verb(hand)
        except BaseException as error:
            self._broken = self._broken or error
            raise

    def sort(self) -> None:
        """Looks at the inline callbacks that have ended."""
        if self._broken is not None:
            raise self._broken
        for hand in self.hands.copy():
            ended = hand.conduct == "ended" and not hand.kept
            if ended and hand.messages[0]._state != PENDING:
                self.hands.remove(hand)
            elif ended:
                sink = hand.messages[0]._sink
                assert isinstance(sink, LeaseRunner)
                if sink.detached:
                    hand.lease_runner, hand.inline, hand.kept = sink, False, True
                    hand.mute = not self._stage.calm and self._stage.chance(0.3)

    def _working(self) -> int:
        """Callbacks that run, the fetcher's too."""
        return self._lent + sum(hand.working and not hand.kept and not hand.inline for hand in self.hands)

    # The pool's side (subscribe/workers/thread_workers.py)

    def wants(self, free: int) -> int:
        if self._mode == "pull queue":
            return min(free, self.wanted)
        if self._aside is not None:
            return free
        return min(free, 2 * self._stage.plan.workers - sum(not hand.kept for hand in self.hands))

    def soon(self, free: int) -> tuple[int, int]:
        return self.wants(free), self.run

    def take(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            kind = BatchLeaseRunner if self._mode == "batch" else LeaseRunner
            lease.lease_runner = lease_runner = kind(lease, self._reports)
            if self._aside is not None:
                self._aside.append(lease_runner)
                continue
            hand = Hand(lease_runner)
            self.hands.append(hand)
            if self._mode == "pull queue":
                self.wanted = max(0, self.wanted - 1)
                hand.working = True
                self._begin(hand)
                self._leave(hand)

    def running(self) -> Iterable[LeaseRunner]:
        return [
            hand.lease_runner for hand in self.hands if hand.working and not hand.kept and not hand.inline
        ]

    def close(self, timeout: float | None) -> bool:
        return not any(hand.working and not hand.kept for hand in self.hands)

    # The script's side

    def movable(self) -> list[Hand]:
        """Holders that can do something now."""
        self.hands = [hand for hand in self.hands if not (hand.mute and hand.lease_runner.withdrawn)]
        free = self._stage.plan.workers - self._working()
        now, calm = self._stage.now(), self._stage.calm
        found = []
        for hand in self.hands:
            if hand.fetched and not hand.kept:
                continue  # moves inside its callback
            if hand.waits:
                continue
            if hand.working:
                at_once = calm and hand.poisoned is None
                if (hand.kept and not hand.mute) or (not hand.kept and (at_once or hand.until <= now)):
                    found.append(hand)
            elif free > 0:
                free -= 1
                found.append(hand)
        return found

    def move(self, hand: Hand) -> None:
        """A single step of a hand."""
        hand.working = True
        if hand.kept:
            self._speak_up(hand)
        elif not hand.messages:
            self._begin(hand)
        elif isinstance(hand.lease_runner, BatchLeaseRunner):
            self._end_batch(hand, hand.lease_runner)
        else:
            self._end(hand)

    # Beginning

    def _begin(self, hand: Hand) -> None:
        lease_runner = hand.lease_runner
        if isinstance(lease_runner, BatchLeaseRunner):
            hand.messages = lease_runner.begin_run()
        else:
            message = lease_runner.begin()
            hand.messages = [] if message is None else [message]
        if not hand.messages:
            self._begin_nothing(hand)
            return
        self._check_alone(hand)
        for at, message in enumerate(hand.messages):
            self._stage.begins(hand.lease, message, [each.offset for each in hand.messages[:at]])
        self._choose(hand)

    def _begin_nothing(self, hand: Hand) -> None:
        done = hand.lease_runner.done
        if isinstance(hand.lease_runner, BatchLeaseRunner):
            self._report(hand, hand.lease_runner.end_run())
        else:
            hand.lease_runner.let_go()
            self._report(hand, LeaseReport(hand.lease, done, LeaseOutcome.UNTOUCHED))

    def _choose(self, hand: Hand) -> None:
        stage, rules = self._stage, self._stage.plan.rules
        hand.conduct = stage.choose_conduct()
        slow = rules.ack_deadline if stage.chance(stage.plan.slow) else 0.0
        hand.until = stage.now() + stage.between(0.0, 3 * slow)
        kinds = [stage.poison(hand.lease, message) for message in hand.messages]
        hand.poisoned = next((at for at, kind in enumerate(kinds) if kind is not None), None)
        if hand.poisoned is not None:
            hand.conduct, slow = "raise", 0.0
            long = kinds[hand.poisoned] == "hangs"
            hand.until = stage.now() + (1.0 + max(rules.ack_deadline, rules.max_extension) if long else 0.0)
        stage.say(f"begins {hand!r}: {hand.conduct}" + (f" after {hand.until:.3f}" if slow else ""))
        if self._mode != "walk":
            return
        message = hand.messages[0]
        if hand.conduct in ("ack_early", "ack_and_raise", "ack_twice"):
            self.ack(hand, message)
        elif hand.conduct == "extend":
            self._extend(hand, message)

    def _check_alone(self, hand: Hand) -> None:
        key, mine = self._key(hand), {message.offset for message in hand.messages}
        for other in self.hands:
            if other is hand or not other.messages or other.lease.partition != hand.lease.partition:
                continue
            running = not other.kept
            leased = not other.lease_runner.withdrawn and other.lease.epoch == hand.lease.epoch
            if key is not None and self._key(other) == key:
                promise(not running and not leased, f"I1: {hand!r} begins beside {other!r}")
            if leased:
                theirs = {message.offset for message in other.messages}
                promise(not mine & theirs, f"I1: {hand!r} begins what {other!r} has")

    def _key(self, hand: Hand) -> bytes | None:
        """The holder's messages: an inline lease has no key, its callback has."""
        if not isinstance(hand.lease_runner, InlineLeaseRunner):
            return hand.lease.key
        return hand.messages[0].key if self._stage.plan.rules.ordered else None

    # Verbs

    def ack(self, hand: Hand, message: Message) -> None:
        """The user acks."""
        if message._state != PENDING or hand.lease_runner.withdrawn:
            self.late += 1
        elif not isinstance(hand.lease_runner, BatchLeaseRunner) or hand.kept:
            self._stage.acked(hand.lease, [message.offset])
        if self._stage.chance(self._stage.plan.asks):
            answer = self._stage.ask(hand.lease, message)
            if not hand.kept and self._mode == "walk" and self._stage.chance(self._stage.plan.waits):
                hand.answer = answer
        else:
            message.ack()

    def nack(self, hand: Hand, message: Message, delay: float | None) -> None:
        """The user nacks."""
        self.late += message._state != PENDING or hand.lease_runner.withdrawn
        message.nack(delay)

    def _extend(self, hand: Hand, message: Message) -> None:
        self.late += message._state != PENDING or hand.lease_runner.withdrawn
        message.extend(self._stage.between(0.5, 30.0))

    # Ending

    def _end(self, hand: Hand) -> None:
        if hand.conduct == "ack_crosses" and not hand.lease_runner.withdrawn and not self._stage.calm:
            self._cross(hand, hand.messages[0])
            return
        self._use_verb(hand)
        self._leave(hand)

    def _use_verb(self, hand: Hand) -> None:
        """The callback's last verb."""
        lease_runner, message, conduct = hand.lease_runner, hand.messages[0], hand.conduct
        if self._stage.calm and not message._state and hand.poisoned is None:
            conduct = "ack"
        if hand.fetched:
            hand.conduct = "ended"
            conduct = "ack" if conduct == "ack_crosses" else conduct
        if conduct == "ack":
            self.ack(hand, message)
        elif conduct in ("ack_twice", "nack"):
            self.nack(hand, message, None)
        elif conduct == "nack_later":
            self.nack(hand, message, self._stage.between(0.0, 5.0))
        elif conduct == "extend_to_nothing":
            self.late += message._state != PENDING or lease_runner.withdrawn
            message.extend(0)
        elif conduct in ("raise", "ack_and_raise"):
            lease_runner.raised(message, RuntimeError("the handler's own"))

    def _cross(self, hand: Hand, message: Message) -> None:
        """An ack on another thread, while the callback returns: reported twice, in either order."""
        lease_runner = hand.lease_runner
        if self._stage.chance(0.5):
            lease_runner.detached = True
            self.ack(hand, message)
            self._report(hand, lease_runner.left(message))
            return
        self._stage.acked(hand.lease, [message.offset])
        message._state = ACKED
        self._report(hand, lease_runner.left(message))
        lease_runner.acked_later(message)

    def _leave(self, hand: Hand) -> None:
        """The callback has returned."""
        lease_runner, message = hand.lease_runner, hand.messages[0]
        if message._state != ACKED:
            self._report(hand, lease_runner.left(message))
            return
        lease_runner.done += 1
        hand.messages = []
        if lease_runner.done == len(hand.lease.records):
            lease_runner.let_go()
            self._report(hand, LeaseReport(hand.lease, lease_runner.done, LeaseOutcome.FINISHED))

    def _end_batch(self, hand: Hand, lease_runner: BatchLeaseRunner) -> None:
        stage, messages = self._stage, hand.messages
        conduct = "ack" if stage.calm and hand.poisoned is None else hand.conduct
        raised = conduct in ("raise", "ack_and_raise")
        if hand.poisoned is not None:
            for message in messages[: hand.poisoned]:
                self.ack(hand, message)
        elif conduct in ("ack", "ack_crosses"):
            for message in messages:
                self.ack(hand, message)
        elif conduct in ("ack_early", "ack_and_raise"):  # a single ack for all before it, or for all
            self.ack(hand, messages[int(stage.between(0, len(messages)))])
        elif conduct in ("ack_twice", "nack", "nack_later"):
            last = int(stage.between(0, len(messages)))
            for message in messages[:last]:
                self.ack(hand, message)
            self.nack(hand, messages[last], None)
        release = lease_runner.end_run(ValueError("no") if raised else None)
        if not lease_runner.withdrawn or release.done:
            stage.acked(hand.lease, [record.offset() for record in hand.lease.records[: release.done]])
        hand.messages = [messages[release.done]] if release.outcome is LeaseOutcome.KEPT else []
        self._report(hand, release)

    def _speak_up(self, hand: Hand) -> None:
        """The user says something about a message whose callback returned long ago."""
        message, what = hand.messages[0], self._stage.choose_conduct()
        if hand.lease_runner.withdrawn and (self._stage.calm or self._stage.chance(0.5)):
            self.hands.remove(hand)
        elif hand.poisoned is not None:
            self.nack(hand, message, None)
        elif self._stage.calm:
            self.ack(hand, message)
        elif what in ("extend", "ack_early"):
            self._extend(hand, message)
        elif what in ("nack", "nack_later", "raise"):
            self.nack(hand, message, None)
        elif what.startswith("ack"):
            self.ack(hand, message)
        if (message._state or hand.lease.state is LeaseState.OVER) and hand in self.hands:
            self._stage.say(f"settles {hand!r}")
            self.hands.remove(hand)

    def _report(self, hand: Hand, release: LeaseReport) -> None:
        self._stage.say(f"releases {hand!r}: {release.done} acked, {release.outcome.name}")
        if release.outcome is LeaseOutcome.KEPT:
            hand.kept, hand.mute = True, not self._stage.calm and self._stage.chance(0.3)
        else:
            hand.messages = []
            self.hands.remove(hand)
        self._reports.released(release)
