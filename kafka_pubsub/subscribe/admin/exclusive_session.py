"""The exclusive session: only the command that holds it may change a subscription's dead letters.

Two commands at the same time would both read which dead letters are left, and replay the same ones. So a command that
changes dead letters joins a consumer group made for this, on the only partition of the marks' topic. Only the member
with that partition acts; its transactions carry the membership and a transactional id that is always the same. The
group lets one command begin; the id fences an earlier command that still runs.

Rules
1. A command waits until the group has no other member, joins, gets the partition, and calls `fence`, which ends the
   transaction of a killed or stalled predecessor. Only then does it read the marks, up to their very end.
2. After any outcome but "stored" the command takes the session again (rule 1), reads the marks, and trusts only them.
3. The group is deleted at the end of the session: its committed positions would look like a lag for ever, because
   every subscription writes to the topic of the marks. The positions are never read; they serve only to fence.
4. A session is for one thread. Between two transactions the member polls (no record ever comes), which keeps it in the
   group.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.ports import Admin, Backend
from kafka_pubsub.model import Committed, Ending, NewRecord, Outcome, TopicPartition
from kafka_pubsub.subscribe.dead_letters.processed_marks import (
    MARKS,
    MARKS_TOPIC,
    ProcessedMarks,
    make_marks_topic,
)

__all__ = ["ExclusiveSession", "forget_session", "session_group"]

log = logging.getLogger("kafka_pubsub.deadletter")

#: Seconds to wait for a session that another command has: the broker notices a killed member after 6.
PATIENCE = 12.0
#: Seconds for joining; a stock broker waits 3 for others to join a new group.
JOINING = 20.0
_POLL = 0.2


def session_group(subscription: str) -> str:
    """Names the group, and the transactional id, of commands that change the subscription's dead letters."""
    return f"_kafka_pubsub.deadletter.{subscription}"


def forget_session(admin: Admin, subscription: str) -> None:
    """Deletes the group, unless it has a member. If the cluster refuses, the group stays: its lag means nothing."""
    group = session_group(subscription)
    try:
        admin.group_offsets(group, MARKS_TOPIC)  # waits until the last transaction's position is stored
        admin.delete_group(group)
    except NotFound:
        pass
    except PubSubError as error:
        log.info("group %r stays: %s", group, error)


class _Listener:
    """A listener that knows whether this member has the partition."""

    def __init__(self) -> None:
        self.held = False
        self.failure: PubSubError | None = None

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Notes whether the partition came; the start doesn't matter, because no record is ever read."""
        self.held = MARKS in partitions
        return {}

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives the partition up: a member joins or leaves."""
        self.held = False

    lost = revoked

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Keeps an error after which the session can't go on."""
        if fatal:
            self.failure = error


class ExclusiveSession:
    """One subscription's exclusive session, which lasts as long as its `with` block."""

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
        self._group = session_group(subscription)

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
        forget_session(self._backend.admin, self._subscription)

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
        """Stores all of the records, or none."""
        membership = self._reader.membership() if self._is_held() else None
        if membership is None:
            return Outcome(Ending.ABORTED, (), self._taken())
        position = Committed(self._marks.position, "")
        return self._transactions.transact(records, {MARKS: position}, membership)
