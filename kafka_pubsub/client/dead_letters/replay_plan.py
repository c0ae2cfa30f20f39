"""In which order dead letters go back: as they lie in their topic, except where that would turn a key's order round.

Theory. A key's letters usually lie in the order in which they were published, because its messages die one after the
other. Not always: one that was replayed and died again lies behind its successors. So each key keeps its places in the
row, and its letters take them in order of origin. Reading stays nearly sequential, and whatever was stored when a
replay is interrupted, the rest comes after it.

Rules
1. Numbers only: a million letters in some forty megabytes.
2. Order is a matter of one key in one partition of the home topic; messages without a key have none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from kafka_pubsub.client.dead_letters.model import Place

__all__ = ["ReplayPlan"]


class ReplayPlan:
    """What was selected."""

    def __init__(self) -> None:
        self._partitions = array("i")
        self._offsets = array("q")
        self._origins = array("q")
        # Number of the letter's line: a key and a home partition; -1: none.
        self._lines = array("q")
        self._numbers: dict[tuple[bytes, int], int] = {}
        # By line: the largest origin so far; and those that came out of order.
        self._last = array("q")
        self._mixed: set[int] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def keys(self) -> int:
        """How many different keys there are."""
        return len({key for key, _ in self._numbers})

    def add(self, place: Place, key: bytes | None, home: int, origin: int) -> None:
        """One more letter, in the order of the log; `home` and `origin` say where it was published."""
        self._partitions.append(place[0])
        self._offsets.append(place[1])
        self._origins.append(origin)
        self._lines.append(-1 if key is None else self._line((key, home), origin))

    def _line(self, line: tuple[bytes, int], origin: int) -> int:
        number = self._numbers.setdefault(line, len(self._numbers))
        if number == len(self._last):
            self._last.append(origin)
        elif origin < self._last[number]:
            self._mixed.add(number)
        else:
            self._last[number] = origin
        return number

    def batches(self, size: int) -> Iterator[list[Place]]:
        """All places in the order in which they go, up to `size` at once."""
        batch: list[Place] = []
        for at in self._order():
            batch.append((self._partitions[at], self._offsets[at]))
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _order(self) -> Iterator[int]:
        """Numbers of the letters."""
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
