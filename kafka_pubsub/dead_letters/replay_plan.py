"""The order in which dead letters are replayed: the order of their topic, except where it would reverse a key's order.

A key's dead letters usually lie in publish order, because its messages are dead-lettered one after the other. But a
message that was replayed and dead-lettered again lies behind its successors. So each key keeps its places in the
sequence, and its dead letters fill them in order of origin. Reading stays nearly sequential, and when a replay is
interrupted, the rest still comes after the stored part.

Rules
1. The plan holds numbers only: a million dead letters take about forty megabytes.
2. Order holds within one key in one partition of the home topic; messages without a key have no order.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator

from kafka_pubsub.dead_letters.model import Place

__all__ = ["ReplayPlan"]


class ReplayPlan:
    """The selected dead letters and their order."""

    def __init__(self) -> None:
        self._partitions = array("i")
        self._offsets = array("q")
        self._origins = array("q")
        # The number of each dead letter's line (a key and a home partition); -1: it has no key.
        self._lines = array("q")
        self._numbers: dict[tuple[bytes, Hashable], int] = {}
        # By line: the largest origin so far; and the lines that are out of order.
        self._last = array("q")
        self._mixed: set[int] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def keys(self) -> int:
        """The number of different keys."""
        return len({key for key, _ in self._numbers})

    def add(self, place: Place, key: bytes | None, home: Hashable, origin: int) -> None:
        """Adds a dead letter, in the order of the log; `home` and `origin` are its home partition and offset."""
        self._partitions.append(place[0])
        self._offsets.append(place[1])
        self._origins.append(origin)
        self._lines.append(-1 if key is None else self._line((key, home), origin))

    def _line(self, line: tuple[bytes, Hashable], origin: int) -> int:
        number = self._numbers.setdefault(line, len(self._numbers))
        if number == len(self._last):
            self._last.append(origin)
        elif origin < self._last[number]:
            self._mixed.add(number)
        else:
            self._last[number] = origin
        return number

    def batches(self, size: int) -> Iterator[list[Place]]:
        """Yields all places in replay order, up to `size` at once."""
        batch: list[Place] = []
        for at in self._order():
            batch.append((self._partitions[at], self._offsets[at]))
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _order(self) -> Iterator[int]:
        """Yields the indexes of the dead letters in replay order."""
        if not self._mixed:
            yield from range(len(self))
            return
        rows: dict[int, list[int]] = {line: [] for line in self._mixed}
        for at, line in enumerate(self._lines):
            if line in rows:
                rows[line].append(at)
        turns = {line: iter(sorted(row, key=self._origins.__getitem__)) for line, row in rows.items()}
        for at, line in enumerate(self._lines):
            yield next(turns[line]) if line in turns else at
