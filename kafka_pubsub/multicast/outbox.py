"""Messages that wait to be staged, or for their receipts; which of them may be staged now, and in which batches.

Theory. Sending is a cause too: what is published later comes later, at every topic. A message to several participants
counts as sent when one of its destinations has released it, and until then only messages to exactly the same
participants may be staged. A message to one participant counts as sent when it is staged.

Rules
1. Messages are staged in the order of publishing. Those that go exactly the same way are staged as one batch: no other
   message to the same participants lies between them.
2. A message whose time has run out while it wasn't staged is never staged. One that is staged holds up the others until
   its receipt comes, even if its future has failed, or until a destination's position is known to be beyond it.
3. A deletion counts as sent with its receipt, and nothing is staged beside it.
4. A batch of which it can't be known whether it is staged isn't staged again, and holds up the others as well.
5. A message has its outcome with the first receipt of a destination that took it, or that of the last if all refuse it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from kafka_pubsub.multicast.batch import BatchMessage, batch_size
from kafka_pubsub.multicast.future import IdFuture, SentFuture
from kafka_pubsub.multicast.layout import place_of
from kafka_pubsub.multicast.records import Receipt
from kafka_pubsub.multicast.routes import Way
from kafka_pubsub.multicast.values import Stage

__all__ = ["Answer", "Batch", "Outbox", "Outgoing", "Standing"]

#: Bytes of a batch unless one message is larger: the inbox of every topic takes more. And of what is staged at once.
_BATCH_BYTES, _AT_ONCE_BYTES = 256 * 1024, 4 * 1024 * 1024

_QUEUED, _STAGED, _OVER = range(3)


class Standing(Enum):
    """How far a message without an outcome is, in words for its publisher."""

    STAGED = "staged"
    #: It was taken to be staged, and no answer has come.
    UNKNOWN = "perhaps staged"
    QUEUED = "not staged"


class Outgoing:
    """A message that was published. `deadline`: when its future fails."""

    __slots__ = ("batch", "deadline", "future", "message", "state", "way")

    def __init__(
        self, way: Way, message: BatchMessage, future: SentFuture | IdFuture, deadline: float
    ) -> None:
        self.way, self.message, self.future, self.deadline = way, message, future, deadline
        self.state = _QUEUED
        self.batch: Batch | None = None

    @property
    def standing(self) -> Standing:
        """How far it is."""
        if self.batch is None or self.batch.trouble:
            return Standing.QUEUED
        return Standing.STAGED if self.batch.stored else Standing.UNKNOWN

    @property
    def topics(self) -> list[str]:
        """The topics to which it goes."""
        return [place_of(name)[0] for name in self.way.destinations]


class Batch:
    """Messages that are staged together, under one name, and have the same outcome.

    `stored`: whether they are staged. `offsets`: where, by the participant. `holds`: whether they hold up others.
    `trouble`: why they weren't staged the last time, while they wait to be staged again; else empty. `refusals`: why
    destinations refused what is left of the messages, by their names.
    """

    __slots__ = (
        "_numbers",
        "_size",
        "holds",
        "messages",
        "offsets",
        "refusals",
        "stage",
        "stored",
        "trouble",
        "way",
    )

    def __init__(self, name: str, way: Way, estimate: int) -> None:
        self.way = way
        self.stage = Stage(name, way.destinations, way.handles, way.deletes, estimate)
        self.messages: list[Outgoing] = []
        self.stored = False
        self.offsets: Mapping[str, int] = {}
        self.holds = way.lasting
        self.trouble = ""
        self.refusals: dict[str, str] = {}
        # Those of what is left of the messages, once some are refused.
        self._numbers: Sequence[int] = ()
        self._size = 0

    def add(self, message: Outgoing, size: int) -> bool:
        """Takes a message of that many bytes; returns False if it goes another way or there is no room."""
        if self.messages and (
            self.way.deletes or self._size + size > _BATCH_BYTES or self.way != message.way
        ):
            return False
        self._size += size
        self.messages.append(message)
        message.state, message.batch = _STAGED, self
        return True

    def take_receipt(self, receipt: Receipt) -> list[tuple[int, Outgoing]]:
        """Takes a destination's receipt; returns the messages that it took as the first one, with their numbers."""
        numbers = self._numbers or range(len(self.messages))
        taken = list(zip(numbers, self.messages, strict=True))
        if receipt.refused or receipt.buried:
            buried = set(numbers if receipt.refused else receipt.buried)
            left = [each for each in taken if each[0] in buried]
            taken = [each for each in taken if each[0] not in buried]
            self._numbers, self.messages = [number for number, _ in left], [message for _, message in left]
            names = self.stage.destinations if receipt.refused else [receipt.destination]
            self.refusals |= dict.fromkeys(names, receipt.reason)
        else:
            self.messages = []
        for _, message in taken:
            message.state = _OVER
        return taken

    @property
    def decided(self) -> bool:
        """Whether each message was taken by a destination, or refused by all."""
        return not self.messages or len(self.refusals) == len(self.stage.destinations)


class Answer(NamedTuple):
    """What a receipt says of messages.

    `taken`: those that its destination took as the first one, with their numbers in the batch. `refused`: those that
    all destinations have refused by now, for `reasons`, by the destination.
    """

    receipt: Receipt
    taken: Sequence[tuple[int, Outgoing]]
    refused: Sequence[Outgoing] = ()
    reasons: Mapping[str, str] = MappingProxyType({})


class Outbox:
    """The messages of one publisher. `sender`: begins the names of its batches."""

    def __init__(self, sender: str) -> None:
        self._sender, self._numbers = sender, count(1)
        self._queue: deque[Outgoing] = deque()
        # Those that are staged, or about to be, and have no receipt.
        self._staged: dict[str, Batch] = {}
        # All whose time may still run out, in the order of publishing, which is that of their deadlines.
        self._waiting: deque[Outgoing] = deque()
        # How many batches hold up others, and what they all go to.
        self._holding = 0
        self._held: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._queue) + sum(len(each.messages) for each in self._staged.values())

    def add(self, message: Outgoing) -> None:
        """Queues a message; its deadline isn't before that of the last one."""
        self._queue.append(message)
        self._waiting.append(message)

    def take(self, most: int, now: float, estimate: int = 0) -> list[Batch]:
        """Returns up to `most` messages that may be staged now, in batches; they count as staged."""
        found: list[Batch] = []
        # By participants: the last batch, which may take more.
        last: dict[tuple[str, ...], Batch] = {}
        size = 0
        for _ in range(min(most, len(self._queue))):
            message = self._queue[0]
            way = message.way
            if message.deadline <= now:
                self._queue.popleft()  # `expired` has told it
                continue
            if size > _AT_ONCE_BYTES or (self._holding and (way.participants != self._held or way.deletes)):
                break
            self._queue.popleft()
            mine = batch_size(message.message)
            size += mine
            batch = last.get(way.participants)
            if batch is None or not batch.add(message, mine):
                batch = last[way.participants] = self._begin(way, estimate)
                batch.add(message, mine)
                found.append(batch)
        return found

    def _begin(self, way: Way, estimate: int) -> Batch:
        batch = Batch(f"{self._sender}-{next(self._numbers)}", way, estimate)
        self._staged[batch.stage.message] = batch
        if way.lasting:
            self._hold(batch)
        return batch

    def _hold(self, batch: Batch) -> None:
        batch.holds = True
        # Nothing has the participants of a deletion, and nothing those of different batches.
        held = () if batch.way.deletes else batch.way.participants
        self._held = held if not self._holding or held == self._held else ()
        self._holding += 1

    def doubt(self, batch: Batch) -> None:
        """It can't be known whether a batch is staged: it holds up others, whatever it is."""
        if not batch.holds and batch.stage.message in self._staged:  # else its receipt has come
            self._hold(batch)

    def held_up(self) -> list[Batch]:
        """Returns the batches that hold up queued messages, and lie where a sequencer may have passed them."""
        return [each for each in self._staged.values() if each.holds and each.offsets] if self._queue else []

    def sent(self, batch: Batch, now: float) -> None:
        """A batch was released or refused somewhere, though no receipt came; it holds up nothing any more."""
        self._holding -= batch.holds
        batch.holds = False
        self._forget_expired(batch, now)

    def _forget_expired(self, batch: Batch, now: float) -> None:
        if not batch.holds and batch.offsets and batch.messages[-1].deadline <= now:
            self._staged.pop(batch.stage.message, None)

    def settle(self, batch: str) -> Batch | None:
        """Ends a batch whose messages all have their outcomes, and returns it; None: it isn't ours."""
        found = self._staged.pop(batch, None)
        if found is not None:
            self._holding -= found.holds
            for message in found.messages:
                message.state = _OVER
        return found

    def take_receipt(self, receipt: Receipt, now: float) -> Answer | None:
        """Takes a destination's receipt; returns which messages have their outcomes by it. None: it isn't ours."""
        batch = self._staged.get(receipt.message)
        if batch is None:
            return None
        taken = batch.take_receipt(receipt)
        if not batch.decided:
            self.sent(batch, now)
            return Answer(receipt, taken)
        self.settle(receipt.message)
        return Answer(receipt, taken, batch.messages, batch.refusals)

    def give_up(self, batch: Batch, now: float) -> list[Outgoing]:
        """Takes the messages whose time has run out from a batch that isn't staged, and returns them."""
        late = [each for each in batch.messages if each.deadline <= now]
        if late:
            batch.messages = [each for each in batch.messages if each.deadline > now]
            for message in late:
                message.state = _OVER
        if not batch.messages:
            self.settle(batch.stage.message)
        return late

    def expired(self, now: float) -> list[tuple[Outgoing, Standing]]:
        """Returns the messages whose time has run out, each once, and how far it is."""
        found = []
        while self._waiting and (self._waiting[0].deadline <= now or self._waiting[0].state == _OVER):
            message = self._waiting.popleft()
            if message.state != _OVER:
                found.append((message, message.standing))
                if message.batch is not None:
                    self._forget_expired(message.batch, now)
        return found

    def waiting(self, topic: str | None = None) -> list[tuple[Outgoing, Standing]]:
        """Returns the messages without an outcome, in the order of publishing; `topic`: only those to it."""
        found = [message for batch in self._staged.values() for message in batch.messages]
        return [
            (each, each.standing)
            for each in (*found, *self._queue)
            if not each.future.done() and (topic is None or topic in each.topics)
        ]

    def next_deadline(self) -> float | None:
        """Returns when the next message's time may run out; any thread may ask, without a lock."""
        try:
            return self._waiting[0].deadline
        except IndexError:
            return None

    def drain(self) -> list[Outgoing]:
        """Returns all messages that wait for anything, and forgets them."""
        found = [*self._queue, *(each for batch in self._staged.values() for each in batch.messages)]
        self._queue.clear()
        self._staged.clear()
        self._waiting.clear()
        self._holding = 0
        return found
