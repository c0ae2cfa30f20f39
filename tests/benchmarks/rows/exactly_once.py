"""kill -9 of a consumer that asks for durable acks, again and again: is a message delivered again that had such an ack?

Theory. A diary of each process has every start, ack and nack, noted before the verb, and each ack that the client said
to be stored, noted afterwards. A process that is killed loses none of these notes. So an ack noted as durable was
reported before; and a start that is noted afterwards, in the same life or a later life, is the violation.

Rules for each message (its key's number, its place in the key):
1. After a durable ack nothing of it is delivered.
2. An ack is told durable once, and of the newest delivery: its START and its ACK are the last notes of the message.
3. Each message was acked; and a key's first deliveries are in the order of publishing, none left out.
4. In the end the subscription has nothing left: an ack that was stored and never told (its process died first) counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_pubsub import PubSub
from tests.benchmarks import journal
from tests.benchmarks.cluster import published_per_key
from tests.benchmarks.row import Measured
from tests.benchmarks.rows.kill import Consumers, kill_often

__all__ = ["Result", "judge", "ours"]

# The share of first deliveries that is nacked, so that acks in the retry topic, and transactions, take part.
NACKS = 0.01
# Seconds from a process's first delivery to its end: long enough for many commits, and to be at full speed.
LIFETIME_S = (0.3, 3.0)
# Records of a message that goes well: its start, its ack, the answer.
PER_MESSAGE = 3
EXAMPLES = 10

_ACKED, _DURABLE = 1, 2


@dataclass
class Result:
    """All diaries together."""

    deliveries: int = 0
    redelivered: int = 0
    """Without a nack before: their processes died before they were told."""
    durable: int = 0
    again: int = 0
    """Rule 1: delivered after a durable ack."""
    untrue: int = 0
    """Rule 2: told durable though it was no newest delivery's, or twice."""
    lost: int = 0
    disordered: int = 0
    examples: list[str] = field(default_factory=list)

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


class _Judge:
    """State over the lives; a byte a message, for there are millions."""

    def __init__(self, published: Mapping[int, int]) -> None:
        self.result = Result()
        self._published = published
        self._state = {key: bytearray(count) for key, count in published.items()}
        # The kind of the last record, of the life that is read and of any.
        self._last = {key: bytearray(count) for key, count in published.items()}
        self._before = {key: bytearray(count) for key, count in published.items()}
        # The place that a key's next first delivery must have.
        self._next: dict[int, int] = {}

    def live(self, number: int, records: Iterable[journal.Record]) -> None:
        """A single process's diary."""
        for some in self._last.values():
            some[:] = bytes(len(some))
        for kind, key, place, _ in records:
            if kind == journal.START:
                self._start(number, key, place)
            elif kind == journal.ACK:
                self._state[key][place] |= _ACKED
            elif kind == journal.DURABLE:
                self._told(number, key, place)
            if kind != journal.DURABLE:
                self._last[key][place] = self._before[key][place] = kind

    def _start(self, number: int, key: int, place: int) -> None:
        result = self.result
        result.deliveries += 1
        if self._state[key][place] & _DURABLE:
            result.again += 1
            result.example(f"process {number}: {place} of key {key} again, its ack was durable")
        if (before := self._before[key][place]) and before != journal.NACK:
            result.redelivered += 1
        if not before:
            due = self._next.get(key, 0)
            if place != due:
                result.disordered += 1
                result.example(f"process {number}: key {key} begins {place}, {due} was next")
            self._next[key] = max(due, place + 1)

    def _told(self, number: int, key: int, place: int) -> None:
        result = self.result
        result.durable += 1
        if self._last[key][place] != journal.ACK or self._state[key][place] & _DURABLE:
            result.untrue += 1
            result.example(
                f"process {number}: {place} of key {key} durable, but that wasn't its newest delivery"
            )
        self._state[key][place] |= _DURABLE

    def finish(self) -> Result:
        """After the last diary."""
        for key, state in self._state.items():
            if missing := sum(not each & _ACKED for each in state):
                self.result.lost += missing
                self.result.example(f"key {key}: {missing} of {len(state)} messages were never acked")
        return self.result


def judge(lives: Iterable[Iterable[journal.Record]], published: Mapping[int, int]) -> Result:
    """Holds the diaries of all processes, oldest first, against the rules; `published` is messages per key."""
    found = _Judge(published)
    for number, records in enumerate(lives):
        found.live(number, records)
    return found.finish()


def ours(bootstrap: str, topic: str, group: str, kills: int, messages: int, distinct: int) -> Measured:
    """Kill, start again, let the last process finish, and judge."""
    with tempfile.TemporaryDirectory(prefix="kafka-pubsub-bench-") as folder:
        wanted = {
            "bootstrap": bootstrap,
            "group": group,
            "records": 2 * PER_MESSAGE * messages,
            "nacks": NACKS,
        }
        consumers = Consumers("tests.benchmarks.exact", wanted, Path(folder), PER_MESSAGE)
        counted = kill_often(consumers, kills, LIFETIME_S)
        found = judge((life.records for life in consumers.lives()), published_per_key(distinct, messages))
    with PubSub(bootstrap) as pubsub:
        left = pubsub.subscription(group).state().lag
    return {
        "kills": counted,
        "deliveries": found.deliveries,
        "redelivered": found.redelivered,
        "durable": found.durable,
        "again": found.again,
        "untrue": found.untrue,
        "lost": found.lost,
        "disordered": found.disordered,
        "left": left,
        "rate": consumers.rate(),
        "note": "; ".join(found.examples),
    }
