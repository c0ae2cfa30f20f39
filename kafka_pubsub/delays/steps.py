"""The steps of a router's partitions while these grow: by the last commits of those that share their keys.

Rules
1. Another thread asks, so that a broker that is away stops nothing else. An answer stays true: times only go on.
2. Commits of open transactions don't count, and no answer waits for the end of one.
3. While ingest doesn't have the added partitions, a former one may go up to the time that its log had before that was
   asked: a message that is stored in an added partition later is due after that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from kafka_pubsub.delays.growth import ALONE, NOTHING_YET, Growth, Step
from kafka_pubsub.delays.layout import INGEST
from kafka_pubsub.delays.progress import IngestProgress, parse_ingest
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.trouble_log import TroubleLog
from kafka_pubsub.model import Committed, TopicPartition

__all__ = ["IDLE_MS", "STEP_MS", "Steps"]

_log = logging.getLogger("kafka_pubsub.service")

#: Milliseconds between two looks at the others, and between two commits for them; between looks while nothing is due.
STEP_MS: Final = 20
IDLE_MS: Final = 200


class _Seen(NamedTuple):
    """An answer: whether ingest has the added partitions, the commits, and our logs' times before the question."""

    grown: bool
    commits: Mapping[TopicPartition, Committed]
    times: Mapping[int, int]


class Steps:
    """The steps of the partitions of one router.

    `commits` returns the group's stored positions of some partitions, `count` how many partitions ingest has.
    """

    def __init__(
        self,
        growth: Growth | None,
        commits: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Committed]],
        count: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.growth = growth
        self._commits, self._count, self._clock = commits, count, clock
        self._thread = None if growth is None else ThreadPoolExecutor(1, "kafka_pubsub-delay-steps")
        self._answer: Future[_Seen] | None = None
        self._look_at = self._looked_at = clock()
        # The times of our logs, by partition, as we were last asked about them.
        self._times: dict[int, int] = {}
        self._steps: dict[int, Step] = {}
        self._troubles = TroubleLog(_log)

    def begin(self, partition: int) -> None:
        """A task of a partition begins, and knows nothing of the others yet."""
        self._times.pop(partition, None)
        self._steps.pop(partition, None)

    def of(self, partition: int, reached: int, *, due: bool) -> Step:
        """Returns the step of a partition, whose log has reached this time; `due`: something there waits for it."""
        if self._thread is None:
            return ALONE
        self._times[partition] = reached
        if due:
            self._look_at = min(self._look_at, self._looked_at + STEP_MS / 1000)
        self._look(self._thread)
        return self._steps.get(partition, NOTHING_YET)

    def close(self) -> None:
        """Waits for no answer."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self, thread: ThreadPoolExecutor) -> None:
        if self._answer is not None and self._answer.done():
            answer, self._answer = self._answer, None
            try:
                self._take(answer.result())
            except PubSubError as error:
                self._troubles.tell(error, "delay router: partitions that share keys wait: %s", error)
        if self._answer is None and self._clock() >= self._look_at:
            self._looked_at = self._clock()
            self._look_at = self._looked_at + IDLE_MS / 1000
            self._answer = thread.submit(self._ask, dict(self._times))

    def _ask(self, times: Mapping[int, int]) -> _Seen:
        assert self.growth is not None
        grown = self._count() >= self.growth.partitions
        others = {other for partition in times for other in self.growth.others(partition)} if grown else ()
        places = [TopicPartition(INGEST, other) for other in sorted(others)]
        return _Seen(grown, self._commits(places) if places else {}, times)

    def _take(self, seen: _Seen) -> None:
        assert self.growth is not None
        for partition, reached in seen.times.items():
            if partition not in self._times:
                continue
            if not seen.grown:
                self._steps[partition] = Step(reached + 1)
                continue
            others: Iterable[int] = self.growth.others(partition)
            commits = [_progress(seen.commits.get(TopicPartition(INGEST, other))) for other in others]
            self._steps[partition] = self.growth.step(partition, commits)


def _progress(found: Committed | None) -> IngestProgress | None:
    if found is None or found.offset is None or not found.metadata:
        return None
    return parse_ingest(found.offset, found.metadata)
