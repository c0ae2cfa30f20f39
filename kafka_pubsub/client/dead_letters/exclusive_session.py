"""The exclusive session: only the command that holds it may change a subscription's dead letters.

Theory. Two commands at once would each read which letters are left, and both would bring the same ones back. So a
command that changes something joins a consumer group made for that, on the one partition of the marks' topic:
only the member that was given that partition acts, and its transactions carry that membership and a transactional
id that is always the same. The group lets one command begin; the id fences an earlier one that still runs.

Rules
1. Sitting down: wait until the group has no other member, join, be given the partition, then `fence`: this ends the
   transaction of a killed or stalled predecessor. Only then the marks are read, up to their very end.
2. After any outcome but "stored": sit down anew (same rule), read the marks, and believe only them.
3. The group is deleted when the exclusive session is left: its committed positions would look like a lag for ever,
   because every subscription writes to the topic of the marks. The positions are never read; they serve only to
   fence.
4. For one thread. Between two transactions the member reads (no record ever comes), which keeps it in the group.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.client.dead_letters.processed_marks import (
    MARKS,
    MARKS_TOPIC,
    ProcessedMarks,
    make_marks_topic,
)
from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.model import Committed, Ending, NewRecord, Outcome, TopicPartition
from kafka_pubsub.ports import Admin, Backend

__all__ = ["ExclusiveSession", "forget_seat", "seat_group"]

log = logging.getLogger("kafka_pubsub.deadletter")

#: Seconds that a exclusive session which is taken is waited for: a killed member is noticed after 6.
PATIENCE = 12.0
#: Seconds for joining; a stock broker waits 3 for others to join a new group.
JOINING = 20.0
_POLL = 0.2


def seat_group(subscription: str) -> str:
    """Names the group, and the transactional id, of commands that change the subscription's dead letters."""
    return f"_kafka_pubsub.deadletter.{subscription}"


def forget_seat(admin: Admin, subscription: str) -> None:
    """Deletes the group, unless it has a member. If the cluster refuses, it stays: its lag means nothing."""
    group = seat_group(subscription)
    try:
        admin.group_offsets(group, MARKS_TOPIC)  # waits until the last transaction's position is stored
        admin.delete_group(group)
    except NotFound:
        pass
    except PubSubError as error:
        log.info("group %r stays: %s", group, error)


class _Listener:
    """Knows whether the partition is ours."""

    def __init__(self) -> None:
        self.held = False
        self.failure: PubSubError | None = None

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Nothing is ever read of it."""
        self.held = MARKS in partitions
        return {}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives the partition up: a member joins or leaves."""
        self.held = False

    lost = revoked

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Remembered if there is no way on."""
        if fatal:
            self.failure = error


class ExclusiveSession:
    """One subscription's exclusive session, taken for the length of a `with`."""

    def __init__(
        self,
        backend: Backend,
        subscription: str,
        marks: ProcessedMarks,
        *,
        may_create: bool,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._subscription = subscription
        self._marks = marks
        self._may_create = may_create
        self._clock = clock
        self._listener = _Listener()
        self._group = seat_group(subscription)

    def __enter__(self) -> ExclusiveSession:
        make_marks_topic(self._backend.admin, may_create=self._may_create)
        self._wait_for_others()
        self._reader = self._backend.reader(self._group, "kafka_pubsub-deadletter")
        self._transactions = self._backend.transactions(self._group)
        try:
            self._reader.subscribe([MARKS_TOPIC], self._listener)
            self.sit_down()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._transactions.close()
        self._reader.close()
        forget_seat(self._backend.admin, self._subscription)

    def _wait_for_others(self) -> None:
        until = self._clock() + PATIENCE
        while self._backend.admin.group_members(self._group):
            if self._clock() > until:
                raise self._taken()
            time.sleep(_POLL)

    def _taken(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"the dead letters of subscription {self._subscription!r} are being replayed, purged or released by "
            "another client just now: wait until that is through, or stop it, then try again"
        )

    def sit_down(self) -> None:
        """Takes the exclusive session and reads all marks; from here on no other command changes them."""
        until = self._clock() + JOINING
        while not self._is_held():
            if self._clock() > until:
                raise self._taken()
        self.fence()
        self._marks.read(self._backend.admin.high_watermarks([MARKS])[MARKS])

    def fence(self) -> None:
        """Ends any transaction that was begun under the id, and fences its writer."""
        self._transactions.fence(self._group)

    def _is_held(self) -> bool:
        self._reader.read(1, 0.0 if self._listener.held else _POLL)
        if self._listener.failure is not None:
            raise self._listener.failure
        return self._listener.held and self._reader.membership() is not None

    def store(self, records: Sequence[NewRecord]) -> Outcome:
        """All of the records, or none."""
        membership = self._reader.membership() if self._is_held() else None
        if membership is None:
            return Outcome(Ending.ABORTED, (), self._taken())
        position = Committed(self._marks.position, "")
        return self._transactions.transact(records, {MARKS: position}, membership)
