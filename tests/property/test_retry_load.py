"""I6: one key that fails for ten minutes under load, on the partition itself: others flow, memory stays flat."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pubsub.core import ack_map
from kafka_pubsub.core.effects import Commit, CommitBoth, Deliver, Effect, ReadBodies, Relocate
from kafka_pubsub.core.events import (
    Bodies,
    CommitAnswered,
    Demand,
    Event,
    Fetched,
    Release,
    Released,
    Relocated,
    RetryCaughtUp,
    RetryFetched,
    Tick,
    Verdict,
)
from kafka_pubsub.core.partition import Partition
from kafka_pubsub.core.redelivery import Backoff, Policy
from kafka_pubsub.core.rules import RECORD_OVERHEAD, RetryStart, Rules, Start
from kafka_pubsub.model import Ending
from tests.property.retry_kafka import Stored
from tests.support import FakeBody

BAD = b"bad"
#: Records read at once, one in five of them of the bad key.
BATCH = 200


class Shell:
    """Obeys at once: reads, transactions and commits take no time."""

    def __init__(self) -> None:
        rules = Rules(ordered=True, backoff=Backoff(1, 10), policy=Policy(100))
        self.partition = Partition(
            Start(0, 1, 1, CommitBoth(0, "", Commit(0, "")), 0, retry=RetryStart("t", "id", 0)),
            rules,
            lambda: 0.5,
        )
        self.now = 0.0
        self.retry: list[Stored] = []
        self.others = self.bad = 0
        self.most_runs = 0
        self.do(RetryCaughtUp(0))
        self.do(Tick())

    def do(self, event: Event) -> None:
        for effect in self.partition.handle(event, self.now):
            self.obey(effect)

    def obey(self, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            for lease in effect.leases:
                self.handle(Release(lease, 0, Verdict.NACKED) if lease.key == BAD else None, lease.records)
                done = 0 if lease.key == BAD else len(lease.records)
                verdict = Verdict.NACKED if lease.key == BAD else Verdict.FINISHED
                self.do(Released([Release(lease, done, verdict)]))
        elif isinstance(effect, CommitBoth):
            self.commit(effect)
            self.do(CommitAnswered(True))
        elif isinstance(effect, Relocate):
            first = len(self.retry)
            for each in effect.records:
                self.retry.append(Stored(len(each.record), len(self.retry), each.record.key(), each.headers))
            self.commit(effect.commit)
            self.do(Relocated(Ending.STORED))
            self.do(RetryFetched(self.retry[first:]))
        elif isinstance(effect, ReadBodies):
            self.do(Bodies([self.retry[offset] for offset in effect.offsets]))

    def handle(self, nacked: Release | None, records: Sequence[object]) -> None:
        if nacked is None:
            self.others += len(records)
        else:
            self.bad += 1

    def commit(self, commit: CommitBoth) -> None:
        for each in (commit, commit.retry):
            found = ack_map.decode(each.metadata, each.offset)
            assert found is not None
            self.most_runs = max(self.most_runs, len(found.runs))


def test_one_failing_key_holds_up_nobody_and_fills_nothing() -> None:
    shell = Shell()
    published = 0
    largest = 0
    for _ in range(600):
        keys = [BAD if at % 5 == 0 else b"k%d" % (at % 97) for at in range(BATCH)]
        shell.do(Fetched([FakeBody(100, published + at, key) for at, key in enumerate(keys)]))
        published += BATCH
        for _ in range(3):
            shell.do(Demand(100, 100))
            shell.do(Tick())
        largest = max(largest, len(shell.partition.offsets.unfinished))
        shell.now += 1.0
    half = shell.partition.half
    assert half is not None
    assert shell.bad > 50
    assert shell.others > 0.99 * (published - published // 5)
    assert largest < 3 * BATCH
    assert len(half.retries.parking) > 0.9 * published // 5
    assert shell.most_runs < ack_map.most_runs(10**6) // 2
    assert half.retries.bodies.size < 200 * (100 + RECORD_OVERHEAD)
    shell.partition.offsets.check()
    half.retries.books.check()
