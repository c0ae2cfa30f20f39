"""What waits in memory for less than a unit: messages until they are due, requests to cancel until their message is.

Rules
1. A log's committed position stays at the lowest record that waits here, so that a restart reads it again.
2. A message that was in no log is `afloat`: it is put back into the tier that it left before the `take` ends.
3. A request has its message's key and comes just before it.
4. Messages that are due and may not go home now are set aside, by the number of their home, and come back unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush

from kafka_pubsub.delays.values import BEFORE_ALL, UNWRITTEN, Key, Waiting
from kafka_pubsub.errors import InvariantViolated

__all__ = ["Memory", "Rested", "key_of"]

#: Due, offset, order, source and the message. The order of a request is -1.
Rested = tuple[int, int, int, int, Waiting]
#: Bytes that a message takes here beside its body.
_BESIDE = 600


def key_of(message: Waiting) -> Key:
    """Returns when a message is released; of a request to cancel, when its message would be."""
    return message.due, message.offset if message.target < 0 else message.target


class Memory:
    """What waits in memory, of so many sources."""

    def __init__(self, sources: int) -> None:
        #: A heap, without the messages that are set aside.
        self.heap: list[Rested] = []
        #: By the number of the home.
        self.aside: dict[int, list[Rested]] = {}
        #: About so many bytes does that take.
        self.aside_size = 0
        # Of each source the positions of what waits here, lowest first, and when it left the place there.
        self._resting: list[dict[int, int]] = [{} for _ in range(sources)]
        self._afloat = 0

    def __len__(self) -> int:
        return len(self.heap) + sum(map(len, self.aside.values()))

    def rest(self, source: int, message: Waiting) -> None:
        """A message of this source waits from now on."""
        order = source if message.target < 0 else -1
        heappush(self.heap, (*key_of(message), order, source, message))
        if message.position == UNWRITTEN:
            self._afloat += 1
        else:
            self._resting[source][message.position] = message.at

    def pop(self) -> Rested:
        """Returns the first, which goes when it is `ended`, or is set aside."""
        return heappop(self.heap)

    def end(self, found: Rested) -> None:
        """A message that `pop` has returned is handled."""
        *_, source, message = found
        if message.position == UNWRITTEN:
            self._afloat -= 1
        else:
            del self._resting[source][message.position]

    def set_aside(self, home: int, found: Sequence[Rested]) -> None:
        """Messages that `pop` has returned wait until their home takes messages."""
        self.aside.setdefault(home, []).extend(found)
        self.aside_size += sum(map(_size_of, found))

    def firsts_aside(self) -> list[tuple[int, Waiting | None]]:
        """Returns the homes for which something is set aside, with the first message; None: only requests are left."""
        return [
            (home, next((each[4] for each in some if each[4].target < 0), None))
            for home, some in self.aside.items()
        ]

    def take_back(self, home: int) -> None:
        """The home takes messages: those that were set aside for the home are due."""
        found = self.aside.pop(home)
        self.aside_size -= sum(map(_size_of, found))
        for each in found:
            heappush(self.heap, each)

    def lowest(self, source: int, otherwise: int) -> int:
        """Returns the lowest position of a source that waits here, if that is lower."""
        return min(otherwise, next(iter(self._resting[source]), otherwise))

    def left_at(self, source: int, position: int) -> int | None:
        """Returns when the message left this position that waits here; None: nothing from there waits."""
        return self._resting[source].get(position)

    def put_back(self) -> dict[int, Sequence[Waiting]]:
        """Returns what is afloat, by the source that it left and in the order of leaving; it goes."""
        found: dict[int, list[Waiting]] = {}
        if not self._afloat:
            return {}
        for *_, source, message in self._all():
            if message.position == UNWRITTEN:
                found.setdefault(source, []).append(message)
        self.heap[:] = _written(self.heap)
        heapify(self.heap)
        for home, some in list(self.aside.items()):
            self.aside_size -= sum(_size_of(each) for each in some if each[4].position == UNWRITTEN)
            self.aside[home] = _written(some)
            if not self.aside[home]:
                del self.aside[home]
        self._afloat = 0
        return {source: sorted(some, key=_leaves) for source, some in found.items()}

    def _all(self) -> Iterator[Rested]:
        yield from self.heap
        for some in self.aside.values():
            yield from some

    def check(self, *, afloat: bool) -> None:
        """Raises `InvariantViolated` if it contradicts itself, or something is afloat that may not be."""
        written = _written(self._all())
        resting = [
            sorted(each[4].position for each in written if each[3] == n) for n in range(len(self._resting))
        ]
        if resting != [list(each) for each in self._resting] or self._afloat != len(self) - len(written):
            raise InvariantViolated("what waits in memory isn't what holds the positions")
        if any(each[:2] <= BEFORE_ALL for each in self._all()):
            raise InvariantViolated("a message in memory was never due")
        if self._afloat and not afloat:
            raise InvariantViolated("a message in memory is in no log")
        heap = list(self.heap)
        heapify(heap)
        if heap[:1] != self.heap[:1]:
            raise InvariantViolated("memory is out of order")
        if self.aside_size != sum(_size_of(each) for some in self.aside.values() for each in some):
            raise InvariantViolated("the size of what is set aside isn't that of its messages")


def _written(rested: Collection[Rested] | Iterator[Rested]) -> list[Rested]:
    return [each for each in rested if each[4].position != UNWRITTEN]


def _size_of(rested: Rested) -> int:
    return _BESIDE + len(rested[4].record)


def _leaves(message: Waiting) -> Key:
    return message.at, message.offset
