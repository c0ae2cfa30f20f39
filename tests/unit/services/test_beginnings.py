"""Dead owners' ids that two threads wait for at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.services.beginnings import Beginnings
from kafka_pubsub.services.sending import Share
from tests.support import until

SHARE = Share(("orders",), 0)
PLACE = TopicPartition("orders", 0)


class Log:
    """A log, its reader and its role: holds up the fences of an id until `go` is set."""

    name = "router"

    def __init__(self) -> None:
        self.go, self.fenced = threading.Event(), 0

    def transactions(self, transactional_id: str) -> Log:
        return self

    def fence(self, transactional_id: str) -> None:
        self.fenced += 1
        assert self.go.wait(20)

    def close(self) -> None:
        self.go.set()

    def committed_unstable(self, places: object) -> dict[TopicPartition, Committed]:
        return {PLACE: Committed(7, "dead")}

    def committed(self, places: object, timeout: float) -> dict[TopicPartition, Committed]:
        return {PLACE: Committed(8, "dead")}

    def reachable_ranges(self, places: object, timeout: float) -> dict[TopicPartition, tuple[int, int]]:
        return {PLACE: (0, 9)}

    def writer_of(self, committed: object) -> str:
        return "dead"


def test_two_threads_that_wait_for_the_same_id_both_begin() -> None:
    log = Log()
    beginnings = Beginnings(cast("MemoryBackend", log), cast("Any", log), cast("Any", log), "own")
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(beginnings.find_together, [SHARE]) for _ in range(2)]
        until(lambda: log.fenced)
        log.go.set()
        for each in found:
            (known,) = each.result(20).values()
            assert not isinstance(known, PubSubError)
            assert known[0].committed == Committed(8, "dead")
    assert log.fenced <= 2
    beginnings.close()


def test_an_id_whose_end_was_not_waited_for_is_ended_again() -> None:
    """Its owner may have come back since."""
    log = Log()
    log.go.set()
    beginnings = Beginnings(cast("MemoryBackend", log), cast("Any", log), cast("Any", log), "own")
    for count in (1, 2):
        beginnings.find_together([SHARE])
        assert log.fenced == count
    beginnings.close()
