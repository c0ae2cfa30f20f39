"""Messages that wait to be staged, or for their receipts; which of them may be staged now.

Theory. Sending is a cause too: what is published later comes later, at every topic. A message to several participants
counts as sent when one of its destinations has released it, and until then only messages to exactly the same
participants may be staged. A message to one participant counts as sent when it is staged.

Rules
1. Messages are staged in the order of publishing.
2. A message whose time has run out while it wasn't staged is never staged. One that is staged holds up the others until
   its receipt comes, even if its future has failed.
3. A deletion counts as sent with its receipt, and nothing is staged beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from kafka_pubsub.core.multicast.values import Stage, Timestamp
from kafka_pubsub.model import Header

__all__ = ["Outbox", "Outgoing", "Sent"]


class Sent(NamedTuple):
    """What the future of `publish_multi` gives: the message's id, and its place in the order of all messages.

    Of two messages the one with the lower `timestamp` comes first at every topic that gets both.
    """

    message_id: str
    timestamp: Timestamp


class Outgoing(NamedTuple):
    """A message that was published. `deadline`: when its future fails."""

    stage: Stage
    key: bytes | None
    data: bytes
    headers: Sequence[Header]
    future: Future[Sent]
    deadline: float

    @property
    def lasting(self) -> bool:
        """Whether it counts as sent only with its receipt."""
        return len(self.stage.participants) > 1 or bool(self.stage.deletes)


class Outbox:
    """The messages of one publisher."""

    def __init__(self) -> None:
        self._queue: deque[Outgoing] = deque()
        # Those that are staged, or about to be, and have no receipt.
        self._staged: dict[str, Outgoing] = {}
        # How many of these hold up others, and what they all go to.
        self._holding = 0
        self._held: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._queue) + len(self._staged)

    def add(self, message: Outgoing) -> None:
        """Queues a message."""
        self._queue.append(message)

    def take(self, most: int, now: float) -> list[Outgoing]:
        """Returns the messages that may be staged now; they count as staged."""
        found: list[Outgoing] = []
        while self._queue and len(found) < most:
            message = self._queue[0]
            if message.deadline <= now:
                self._queue.popleft()  # `expire` has failed it
                continue
            if self._holding and (message.stage.participants != self._held or message.stage.deletes):
                break
            found.append(self._queue.popleft())
            self._staged[message.stage.message] = message
            if message.lasting:
                self._holding += 1
                # Nothing has the participants of a deletion.
                self._held = () if message.stage.deletes else message.stage.participants
        return found

    def settle(self, message: str) -> Outgoing | None:
        """Takes a message's receipt, or gives it up if it isn't staged after all; None: it isn't ours."""
        found = self._staged.pop(message, None)
        if found is not None and found.lasting:
            self._holding -= 1
        return found

    def expired(self, now: float) -> list[tuple[Outgoing, bool]]:
        """Returns the messages whose time has run out and whose futures wait, and whether each is staged."""
        queued = [(each, False) for each in self._queue if each.deadline <= now]
        staged = [(each, True) for each in self._staged.values() if each.deadline <= now]
        return [each for each in queued + staged if not each[0].future.done()]

    def next_deadline(self) -> float | None:
        """Returns when the next message's time runs out."""
        waiting = [*self._queue, *self._staged.values()]
        return min((each.deadline for each in waiting if not each.future.done()), default=None)

    def drain(self) -> list[Outgoing]:
        """Returns all messages that wait for anything, and forgets them."""
        found = [*self._queue, *self._staged.values()]
        self._queue.clear()
        self._staged.clear()
        self._holding = 0
        return found
