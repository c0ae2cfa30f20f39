"""Which files and functions one message passes: on its way to a callback, from its ack to the commit, after a nack.

`python -m tests.unit.house.walks` prints the counts; `--files` adds the files in the order of their first calls;
`--draw` writes the table "Every file on the way" of docs/design.md anew.

Theory. The client runs on its threads over the Kafka in memory, whose own files aren't counted. A file counts in a walk
if any thread calls a function of it meanwhile, even if only to ask whether something is due: a reader who follows the
message passes it. What only some of `ROUNDS` walks pass, they pass by chance, because threads aren't always equally
fast: it doesn't count.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import TopicPartition
from tests.support import until
from tests.unit.house.repository import PACKAGE, ROOT

__all__ = ["Walk", "draw", "drawn", "trace_walks"]

ROUNDS = 5
NAMES = ("delivery", "ack", "nack")
PAGE = ROOT / "docs" / "design.md"
HEADING = "## Every file on the way\n"
RULE = "|---|---|---|---|\n"

_INSIDE = f"{PACKAGE}/"
_LEFT_OUT = f"{PACKAGE}/log/memory/"
#: Seconds that the first callback takes: then the next one gets a thread, and isn't called by the thread that reads.
_SLOW = 0.1


class Walk(NamedTuple):
    """What was called, in the order of the first calls."""

    files: list[str]
    functions: list[str]


class _Trace:
    """The calls of all threads."""

    def __init__(self) -> None:
        self._called: dict[tuple[str, str], None] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        called = self._called
        if called is not None and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(_INSIDE) and not code.co_filename.startswith(_LEFT_OUT):
                called[code.co_filename[len(_INSIDE) :], code.co_qualname] = None

    def begin(self) -> None:
        """Begins a walk."""
        self._called = {}

    def end(self) -> Walk:
        """Ends the walk."""
        called, self._called = list(self._called or ()), None
        return Walk(
            list(dict.fromkeys(file for file, _ in called)), [f"{file}:{name}" for file, name in called]
        )


@contextmanager
def _tracing() -> Iterator[_Trace]:
    trace = _Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def trace_walks() -> Mapping[str, Walk]:
    """Returns the walks of a delivery on a thread, of an ack to its commit, and of a nack and back."""
    rounds = [_trace_one() for _ in range(ROUNDS)]
    return {name: _common([each[name] for each in rounds]) for name in NAMES}


def _common(walks: list[Walk]) -> Walk:
    """Returns the files and functions of all walks, in the order of the first walk."""
    return Walk(
        *([name for name in walks[0][at] if all(name in walk[at] for walk in walks)] for at in range(2))
    )


def draw() -> str:
    """Returns the rows of the table: by folder the files of a delivery, and the files that an ack and a nack add."""
    rounds = [_trace_one() for _ in range(ROUNDS)]
    files = {
        name: list(dict.fromkeys(file for each in rounds for file in each[name].files)) for name in NAMES
    }
    columns = [
        files["delivery"],
        *([each for each in files[name] if each not in files["delivery"]] for name in NAMES[1:]),
    ]
    folders = sorted({_folder(file) for column in columns for file in column})
    return "".join(_row(folder, columns) for folder in folders)


def _row(folder: str, columns: list[list[str]]) -> str:
    cells = [", ".join(Path(file).stem for file in column if _folder(file) == folder) for column in columns]
    return f"| `{folder}` |{''.join(f' {cell} |' if cell else ' |' for cell in cells)}\n"


def _folder(file: str) -> str:
    return f"{file.rpartition('/')[0]}/"


def drawn(page: str) -> Mapping[str, set[str]]:
    """Returns the files of each walk by the table of a page."""
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for folder, *cells in re.findall(
        r"^\| `([\w/]+)` \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", _table(page), re.MULTILINE
    ):
        for name, cell in zip(NAMES, cells, strict=True):
            found[name] |= {
                f"{folder.lstrip('/')}{each.strip()}.py" for each in cell.split(",") if each.strip()
            }
    return {name: files | found["delivery"] for name, files in found.items()}


def _table(page: str) -> str:
    return page.partition(HEADING)[2].partition("\n## ")[0]


def _write() -> None:
    """Writes the rows of the table anew into the page."""
    text = PAGE.read_text(encoding="utf-8")
    table = _table(text)
    head = table[: table.index(RULE) + len(RULE)]
    PAGE.write_text(text.replace(table, head + draw()), encoding="utf-8")


def _trace_one() -> Mapping[str, Walk]:
    walks: dict[str, Walk] = {}
    redelivered = threading.Event()
    cluster = (backend := MemoryBackend()).cluster
    with _tracing() as trace, PubSub.in_memory(backend=backend) as pubsub:
        pubsub.create_topic("orders", partitions=1, message_ordering=True)
        retry = RetryPolicy(min_backoff=0.1, max_backoff=0.1)
        subscription = pubsub.create_subscription(
            "billing", topic="orders", message_ordering=True, retry=retry
        )

        def take(message: Message) -> None:
            if message.data == b"slow":
                threading.Event().wait(_SLOW)
            elif message.data == b"ack":
                walks["delivery"] = trace.end()
                trace.begin()
            elif message.delivery_attempt == 1:
                trace.begin()
                message.nack()
                return
            else:
                walks["nack"] = trace.end()
                redelivered.set()
            message.ack()

        def take_one(data: bytes) -> None:
            end = (cluster.append("orders", 0, data, key=b"customer 7").offset() or 0) + 1
            until(lambda: _committed(cluster) == end)

        with subscription.pull(take):
            take_one(b"slow")
            trace.begin()
            take_one(b"ack")
            walks["ack"] = trace.end()
            take_one(b"nack")
            assert redelivered.wait(10)
    return walks


def _committed(cluster: MemoryCluster) -> int | None:
    with cluster.changed:
        stored = cluster.group("billing").offsets.get(TopicPartition("orders", 0))
    return None if stored is None else stored.offset


def main() -> None:
    """Prints the counts, or writes the table anew."""
    if "--draw" in sys.argv[1:]:
        _write()
        return
    for name, walk in trace_walks().items():
        print(f"{name}: {len(walk.files)} files, {len(walk.functions)} functions")
        if "--files" in sys.argv[1:]:
            print(*(f"  {file}" for file in walk.files), sep="\n")


if __name__ == "__main__":
    main()
