"""Messages for a tier are written with more of their kind; messages that go home don't wait for that."""

from __future__ import annotations

from typing import Any

from kafka_pubsub.delays.progress import IngestProgress, Progress, RouterStart
from kafka_pubsub.delays.router import Router
from kafka_pubsub.delays.values import TO_DEAD, TO_HOME, TO_NOTHING, Came, Tick, Waiting

UNIT, PAUSE = 1000, 100
BODY: Any = b"body"


class Setting:
    """A router of three tiers, and the log of its ingest."""

    def __init__(self, ends: tuple[int, int, int] = (0, 0, 0), pause: int = PAUSE) -> None:
        tiers = [Progress(0, 0)] * 3
        self.router = Router(RouterStart(IngestProgress(0, 0), tiers, ends), UNIT, pause=pause)
        self._next = 0

    def publish(self, at: int, delay: int) -> None:
        self._read(Came(self._next, "home", None, delay, BODY, stamp=at))

    def cancel(self, at: int, due: int, target: int) -> None:
        self._read(Came(self._next, "", due, None, BODY, target, stamp=at))

    def tick(self, at: int) -> None:
        self._read(Tick(self._next, at))

    def _read(self, record: Came | Tick) -> None:
        self._next += 1
        self.router.receive_ingest([record], 0)

    def take(self) -> list[tuple[int, int]]:
        """Where each message goes, by the offset of its arrival."""
        return [(to, message.offset) for to, message in self.router.take(1000)]


def test_what_leaves_for_a_tier_waits_for_the_next_flush() -> None:
    setting = Setting()
    setting.publish(5000, 1500)
    assert setting.take() == [(0, 0)], "the last flush was long ago"
    setting.publish(5001, 2500)
    assert setting.take() == []
    setting.publish(5099, 1500)
    assert setting.take() == []
    assert setting.router.next_at() == 5000 + PAUSE
    setting.tick(5100)
    assert setting.router.ready
    assert setting.take() == [(0, 2), (1, 1)]


def test_what_goes_home_moves_the_mark_alone_while_something_is_unwritten() -> None:
    setting = Setting()
    setting.publish(5000, 20)
    setting.publish(5000, 1500)
    assert setting.take() == [(0, 1)]
    said = setting.router.progress()[0]
    assert isinstance(said, IngestProgress)
    setting.publish(5030, 1500)
    assert setting.take() == [(TO_HOME, 0)]
    assert setting.router.progress() == {0: said._replace(mark=(5020, 0))}


def test_a_record_of_another_program_before_a_message_doesnt_hide_it_from_a_request_to_cancel() -> None:
    setting = Setting()
    setting.publish(5000, 1000)
    assert setting.take() == [(0, 0)]
    setting.cancel(5001, 6000, 0)
    assert setting.take() == []
    stray, message = Waiting(6000, 0, 0, 0, None, 0, BODY), Waiting(6000, 0, 6000, 0, "home", 1, BODY)
    setting.router.receive_tier(0, [stray, message])
    setting.tick(6000)
    assert setting.take() == [(TO_NOTHING, 0), (TO_DEAD, 0)]


def test_much_that_is_unwritten_waits_for_no_flush() -> None:
    setting = Setting()
    setting.publish(5000, 1500)
    setting.take()
    for _ in range(1000):
        setting.publish(5001, 1500)
    assert len(setting.take()) == 1000


def test_a_backlog_of_seconds_is_one_take() -> None:
    """Messages that a tier gets and loses within the take aren't written, nor read back."""
    setting = Setting()
    for number in range(100):
        setting.publish(5000, 1000 + 50 * number)
    setting.tick(60_000)
    assert setting.take() == [(TO_HOME, number) for number in range(100)]


def test_a_head_that_wasnt_written_is_known_once_its_tier_was_read_to_its_end() -> None:
    setting = Setting(ends=(2, 0, 0), pause=10_000)
    setting.router.receive_tier(0, [Waiting(5500, 9, 5500, 0, "home", 0, BODY)])
    setting.publish(5001, 1000)
    setting.publish(5050, 952)
    setting.tick(5600)
    assert setting.take() == [(TO_HOME, 9)]
    setting.router.reach_tier(0, 2)  # a marker was all that there was
    setting.tick(6010)
    assert setting.take() == [(TO_HOME, 0), (TO_HOME, 1)]


def test_what_shares_its_key_waits_for_other_partitions_and_what_is_behind_it() -> None:
    setting = Setting()
    setting.router.shares = lambda message: message.offset % 2 == 1
    setting.router.only_before = 5030
    for offset in range(6):
        setting.publish(5000, 10 * (offset + 1))
    setting.tick(5100)
    assert setting.take() == [(TO_HOME, 0), (TO_HOME, 1), (TO_HOME, 2)], "the third shares no key"
    assert not setting.router.ready
    assert setting.take() == []
    setting.router.only_before = 5041
    assert setting.take() == [(TO_HOME, 3), (TO_HOME, 4)]


def test_what_is_due_as_it_comes_in_waits_for_other_partitions_too() -> None:
    setting = Setting()
    setting.router.shares = lambda message: True
    setting.router.only_before = 5000
    setting.publish(5000, 0)
    assert setting.take() == []
    assert not setting.router.ready
    setting.router.only_before = 5001
    assert setting.take() == [(TO_HOME, 0)]
