"""A long valid history, to measure the checker: `python -m tests.checker.volume DIRECTORY MESSAGES`.

Four members share eight partitions; a message in twenty is nacked, moved and delivered again; every now and then all
partitions go to the next member, and every other time the former owner is killed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from kafka_pubsub.history.history import HistoryFile

__all__ = ["write"]

PARTITIONS = 8
#: Messages between two commits of a partition, and between two changes of owners.
COMMIT, CHANGE = 200, 25_000


class _Group:
    """Members take turns."""

    def __init__(self, directory: Path, driver: HistoryFile) -> None:
        self._directory, self._driver = directory, driver
        self._count = 0
        self.file = self._join()

    def _join(self) -> HistoryFile:
        self._count += 1
        path = self._directory / f"member-{self._count}.jsonl"
        return HistoryFile(path, role="subscriber", topic="orders", subscription="billing", pid=self._count)

    def change(self, positions: list[int], retries: list[int]) -> None:
        """Everything goes to a new member."""
        if self._count % 2:
            self._driver.crash(self._count)
        else:
            for number in range(PARTITIONS):
                self.file.revoke(number, number, lost=False)
            self.file.close()
        self.file = self._join()
        self.begin(positions, retries)

    def begin(self, positions: list[int], retries: list[int]) -> None:
        for number in range(PARTITIONS):
            self.file.assign(number, number, (positions[number], ()), (retries[number], ()), retries[number])


def write(directory: Path, messages: int, keys: int = 100_000) -> list[Path]:
    """Writes the history, and returns the files."""
    chance = random.Random(1)
    driver = HistoryFile(directory / "driver.jsonl", role="driver", topic="orders", pid=10_001)
    publisher = HistoryFile(directory / "publisher.jsonl", role="publisher", topic="orders", pid=10_002)
    group = _Group(directory, driver)
    positions, retries, commits = [0] * PARTITIONS, [0] * PARTITIONS, 0
    group.begin(positions, retries)
    for at in range(messages):
        key = int(keys ** chance.random())  # a tenth of the keys below 3, as in a busy shop
        number, sha = key % PARTITIONS, f"{at * 0x9E3779B97F4A7C15 & (1 << 64) - 1:016x}"
        offset = positions[number]
        publisher.send(at, f"key-{key}", sha)
        publisher.stored(at, number, offset)
        file = group.file
        file.delivered(number, offset, number, 1, sha)
        if at % 20:
            file.ack(number, offset, number, 1)
            file.handler_end(number, offset, number)
        else:
            file.nack(number, offset, number, 1, None)
            file.handler_end(number, offset, number)
            commits += 1
            file.relocate(commits, number, number, [(offset, None, 2, 0.0, "nack")])
            file.commit(commits, number, number, (offset + 1, ()), (retries[number], ()))
            file.answer(commits, number, number, True, [(offset, retries[number])])
            file.delivered(number, offset, number, 2, sha, retries[number])
            file.ack(number, offset, number, 2)
            file.handler_end(number, offset, number)
            retries[number] += 1
        positions[number] += 1
        changing = at % CHANGE == CHANGE - 1
        for each in range(PARTITIONS) if changing else [number] if positions[number] % COMMIT == 0 else []:
            commits += 1
            file.commit(commits, each, each, (positions[each], ()), (retries[each], ()))
            file.answer(commits, each, each, True)
        if changing:
            group.change(positions, retries)
    for number in range(PARTITIONS):
        commits += 1
        group.file.commit(commits, number, number, (positions[number], ()), (retries[number], ()))
        group.file.answer(commits, number, number, True)
        group.file.revoke(number, number, lost=False)
    for file in (group.file, publisher, driver):
        file.close()
    return sorted(directory.glob("*.jsonl"))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
