"""How far a round is, from what its processes have written down so far.

Theory: settling must not be judged by what the subscription says of itself alone, which is part of what is tested. So
the histories are read on while they grow, and only a few events of them.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["Progress", "place_of"]

_WANTED = (b'{"event":"stored"', b'{"event":"ack"')
#: Bytes taken at a time.
CHUNK = 64 << 20


def place_of(partition: int, offset: int) -> int:
    """A message's name in a single number: a long round has a million of them."""
    return partition << 48 | offset


class Progress:
    """What was stored and isn't acked yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: Bytes of each history that were read.
        self._read: dict[Path, int] = {}
        self.stored: set[int] = set()
        self.acked: set[int] = set()

    def look(self) -> None:
        """Reads on."""
        for path in self._folder.glob("*.jsonl"):
            while self._read_on(path):
                pass

    def unfinished(self, dead: set[int]) -> set[int]:
        """Stored, and neither acked nor dead."""
        return self.stored - self.acked - dead

    def _read_on(self, path: Path) -> bool:
        """Whether there may be more."""
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            raw = file.read(CHUNK)
        # What isn't written yet is zeros; a line may be half written.
        told, _, _ = raw.partition(b"\0")[0].rpartition(b"\n")
        if not told:
            return False
        self._read[path] = self._read.get(path, 0) + len(told) + 1
        for line in told.split(b"\n"):
            if line.startswith(_WANTED):
                event = json.loads(line)
                seen = self.stored if event["event"] == "stored" else self.acked
                seen.add(place_of(event["partition"], event["offset"]))
        return len(raw) == CHUNK
