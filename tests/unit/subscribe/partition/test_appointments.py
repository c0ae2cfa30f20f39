"""When a partition wants to be looked at again for what is parked."""

from __future__ import annotations

from kafka_pubsub.subscribe.partition import retry_partition
from kafka_pubsub.subscribe.partition.events import Tick
from tests.unit.subscribe.partition.test_retry_partition import Scene, parked


def test_what_becomes_due_at_almost_the_same_time_is_looked_at_once_and_never_early() -> None:
    dues = [10_000 + at for at in range(40)]  # a millisecond apart
    scene = Scene([parked(at, at, key=b"k%d" % at, due=due) for at, due in enumerate(dues)])
    scene.fetch((50, b"x"))
    scene.ack(scene.begun()[0])
    scene.settle()
    looks = 0
    begun: list[int] = []
    while len(begun) < len(dues):
        wake = scene.partition.wakeup_at()
        assert wake is not None
        looks += wake > 10.0
        scene.now = max(scene.now, wake)
        scene.do(Tick())
        due = [dues[lease.records[0].offset()] for lease in scene.begun(99)]
        assert all(each <= scene.now * 1000 <= each + 1000 * retry_partition.TOGETHER + 1 for each in due)
        begun += due
        assert scene.now < 11.0
    assert looks <= 4
