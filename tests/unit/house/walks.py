"""Which files and functions one message passes: on its way to a callback, from its ack to the commit, after a nack.

`python -m tests.unit.house.walks` prints the counts; `--files` adds the files in the order of their first calls.

Theory. The client runs on its threads over the Kafka in memory, whose own files aren't counted. A file counts in a walk
if any thread calls a function of it meanwhile, even if only to ask whether something is due: a reader who follows the
message passes it. What only some of `ROUNDS` walks pass, they pass by chance, because threads aren't always equally
fast: it doesn't count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.model import TopicPartition
from tests.support import until
from tests.unit.house.repository import PACKAGE

__all__ = ["Walk", "trace_walks"]

ROUNDS = 5

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
    return {name: _common([each[name] for each in rounds]) for name in ("delivery", "ack", "nack")}


def _common(walks: list[Walk]) -> Walk:
    """Returns what all of the walks have, in the order of the first one."""
    return Walk(
        *([name for name in walks[0][at] if all(name in walk[at] for walk in walks)] for at in range(2))
    )


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
    """Prints the counts."""
    for name, walk in trace_walks().items():
        print(f"{name}: {len(walk.files)} files, {len(walk.functions)} functions")
        if "--files" in sys.argv[1:]:
            print(*(f"  {file}" for file in walk.files), sep="\n")


if __name__ == "__main__":
    main()
