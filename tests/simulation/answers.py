"""The answers to acks, held against the log and against the deliveries.

Theory. A delivery is numbered when its handler begins; an ack that asks for an answer belongs to a delivery. An answer
is judged in the moment in which it comes, and answers "delivered again" once more at the end.

Promised (docs/invariants.md, I2 and I4)
  answer   whoever is told that his ack is durable finds it in the group's stored state
  newest   his delivery was the newest in his process: an old one's ack counts for nothing, and is told so. (A partition
           that comes back unchanged goes on: whoever had it in between has stored nothing.)
  told     whoever was told never gets the message again (nor does any owner: the ledger's `durable`)
  again    whoever was told that the message comes again is right, unless it is dead-lettered, parked or gone
  silence  everybody is told something
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from kafka_pubsub.errors import AckError, StaleAck
from kafka_pubsub.model import Message
from kafka_pubsub.subscribe.partition.effects import Unstored
from kafka_pubsub.subscribe.workers.ack_futures import _WHY
from tests.simulation.ledger import Violation, promise

__all__ = ["Answers", "Place"]

_GONE = _WHY[Unstored.GONE][1]


class Place(NamedTuple):
    """Where a message was published."""

    partition: int
    offset: int


class Answers:
    """The answers of a world. `durable` says whether the log knows that a message is finished."""

    def __init__(self, durable: Callable[[Place], bool]) -> None:
        self._durable = durable
        #: How often each message was delivered, and the newest of its deliveries under a valid owner.
        self._deliveries: Counter[Place] = Counter()
        self._newest: dict[tuple[str, Place], int] = {}
        #: The number of each message's delivery. (Kept with the message, so that its identity isn't given to another.)
        self._numbers: dict[int, tuple[Message, int]] = {}
        #: Who was told of which message that its ack is durable, or that it comes again.
        self._told: set[tuple[str, Place]] = set()
        self._again: list[tuple[str, Place, int]] = []
        self._open: dict[Future[None], tuple[str, Place]] = {}
        #: How many answers of each kind.
        self.counts: Counter[str] = Counter()
        self._broken: Violation | None = None

    def begins(self, process: str, place: Place, message: Message, *, valid: bool) -> None:
        """A handler gets a message."""
        self._deliveries[place] = number = self._deliveries[place] + 1
        self._numbers[id(message)] = (message, number)
        if valid:
            self._newest[process, place] = number
        promise((process, place) not in self._told, f"told: {process} gets {place}, of which it was told")

    def asked(self, process: str, place: Place, message: Message, answer: Future[None]) -> None:
        """The message's ack waits for an answer, or has one."""
        self._open[answer] = (process, place)
        number = self._numbers[id(message)][1]
        # Not by the future's own, which calls back on a thread.
        Future.add_done_callback(answer, partial(self._answered, process, place, number))

    def _answered(self, process: str, place: Place, number: int, answer: Future[None]) -> None:
        self._open.pop(answer)
        try:
            self._judge(process, place, number, answer.exception())
        except Violation as violation:  # a future swallows the errors of its callbacks
            self._broken = self._broken or violation

    def _judge(self, process: str, place: Place, number: int, error: BaseException | None) -> None:
        who = f"{process} of delivery {number} of {place}"
        if error is None:
            self.counts["durable"] += 1
            promise(self._durable(place), f"answer: {who} was told it is durable, the log doesn't know it")
            newest = self._newest.get((process, place), 0)
            promise(newest <= number, f"newest: {who} was told it is durable, after delivery {newest}")
            self._told.add((process, place))
            return
        promise(isinstance(error, AckError), f"answer: {who} was told {error!r}")
        self.counts["stale" if isinstance(error, StaleAck) else "unknown"] += 1
        if _GONE in str(error):
            self._again.append((who, place, number))

    def check(self) -> None:
        """Raises the broken promises of answers."""
        if self._broken is not None:
            raise self._broken

    def check_reported(self, process: str) -> None:
        """A process has ended in good order: nobody waits there any more."""
        left = sorted(place for name, place in self._open.values() if name == process)
        promise(not left, f"silence: nobody at {process} was told of {left}")

    def check_end(self, excused: Callable[[int], Collection[int]]) -> None:
        """Everything has settled; of each partition some messages needn't come again."""
        self.check()
        for who, place, number in self._again:
            again = self._deliveries[place] > number or place.offset in excused(place.partition)
            promise(again, f"again: {who} was told that it comes again, and it didn't")
