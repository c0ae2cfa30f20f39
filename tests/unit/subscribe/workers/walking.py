"""Inline holders to walk through, and the moments at which another thread might come in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from kafka_pubsub import Message
from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.partition import inline_lease
from kafka_pubsub.subscribe.partition.events import LeaseOutcome, LeaseReport, Passed
from kafka_pubsub.subscribe.partition.leases import Lease
from kafka_pubsub.subscribe.workers.inline_runner import (
    LONGEST,
    InlineLeaseRunner,
)
from tests.partition_ids import P
from tests.support import FakeBody
from tests.unit.subscribe.workers.holding import Reported

__all__ = [
    "KEYS",
    "VERBS",
    "Moments",
    "acked",
    "at",
    "is_passed",
    "lease_runner_of",
    "left",
    "narrow",
    "offsets",
]

KEYS = [b"a", b"b", b"a", None, b"b", b"c"]


def lease_runner_of(
    keys: Sequence[bytes | None] = KEYS, *, ordered: bool = True, spare: int = LONGEST
) -> tuple[InlineLeaseRunner, Reported]:
    reports = Reported()
    lease = Lease(P[0], 1, None, [FakeBody(offset=at, key=key) for at, key in enumerate(keys)], 1)
    return InlineLeaseRunner(lease, reports, ordered=ordered, spare=spare), reports


def offsets(records: Sequence[Record]) -> list[int]:
    return [record.offset() for record in records]


def left(passed: Passed) -> dict[int, LeaseOutcome]:
    kept = {release.lease.records[0].offset(): release.outcome for release in passed.left}
    return kept | {record.offset(): LeaseOutcome.NACKED for record, _, _ in passed.nacked}


def is_passed(told: Passed | LeaseReport | None) -> Passed:
    assert isinstance(told, Passed)
    return told


def acked(message: Message) -> None:
    message.ack()


def narrow(lease: Lease, passed: Passed) -> Passed:
    """What the core does when it is told of a take-over; hands on what it was told, as it stood then."""
    finished = inline_lease.finished(passed)
    assert not set(offsets(finished)) & set(left(passed))
    if passed.current:
        lease.records, lease.key = [lease.records[passed.reached]], lease.records[passed.reached].key()
    return passed


VERBS: dict[str, Callable[[Message], object]] = {
    "nack": lambda message: message.nack(),
    "nack later": lambda message: message.nack(delay=2.5),
    "extend to nothing": lambda message: message.extend(0),
    "raise": lambda message: 1 / 0,
    "keep": lambda message: None,
}


def at(offset: int, verb: Callable[[Message], object]) -> Callable[[Message], None]:
    """A callback that acks all but one."""

    def handle(message: Message) -> None:
        if message.offset == offset:
            verb(message)
        else:
            message.ack()

    return handle


class Moments:
    """A holder's lock, and a count of the moments at which another thread might come in between; it does at one."""

    def __init__(self, chosen: int, then: Callable[[], object]) -> None:
        self.passed = 0
        self._chosen = chosen
        self._then = then
        self._lock = threading.Lock()
        self._inside = False

    def moment(self) -> None:
        if not self._inside:
            self._inside = True
            if self.passed == self._chosen:
                self._then()
            self._inside = False
            self.passed += 1

    def __enter__(self) -> None:
        self.moment()
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self.moment()
