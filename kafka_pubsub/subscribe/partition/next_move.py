"""The next move of a message that wasn't acked: why it moves, when it is due, or that its attempts are used up.

Rules
1. An attempt is a delivery that was nacked or whose deadline passed. A message that waited, or was moved within the
   retry partition, keeps its number. Crashes for which the message was blamed are counted by themselves and added in
   the end.
2. Messages whose attempts are used up become dead letters, or are parked: they lie in the retry partition and are never
   due. While the partition probes (`outage`), only a message in a while is used up: the others keep their last attempt,
   unless it is their only attempt.
   A message that is to become a dead letter moves into the retry partition first (`UNBURIED`) and is dead-lettered from
   there: however long the dead-letter topic is away, no owner runs its callback again. So does a message that its
   callback gave up (`REJECTED`), which counts as no failure: nothing is wrong with the callback's services. Where the
   policy makes no dead letters the message is parked there.
3. Due times cross processes, so they are milliseconds of the wall clock, rounded up (I8). When a record is read its
   due time becomes a time of the core's clock: a wall clock that is set afterwards changes no due time known here.
4. No wait is longer than the policy allows, or a delay may be: a later due time is of a clock that was wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import cast

from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Header, StoredRecord
from kafka_pubsub.subscribe.formats.record import (
    FOREVER,
    Broken,
    Death,
    RetryInfo,
    RetryRecord,
    Why,
    dead_headers,
    retry_headers,
)
from kafka_pubsub.subscribe.partition.key_line import NEVER, Entry
from kafka_pubsub.subscribe.partition.moves import PATIENCE, SHARE, Move
from kafka_pubsub.subscribe.partition.outage import Outage
from kafka_pubsub.subscribe.partition.settings import LONGEST_DELAY, REJECTED, Exhausted, Found, Rules

__all__ = ["NextMoves", "headers_of"]


#: Seconds. No wait but a delay is longer than this, or than the longest backoff of the policy where that is more.
LATEST = 60.0

#: The text for the operator where no error is known.
_NO_WORDS = {
    Why.NACKED: "it was nacked",
    Why.EXPIRED: "it was neither acked nor nacked when its deadline passed",
}


class NextMoves:
    """The decisions on the next moves of a partition's messages."""

    def __init__(self, start: Found, rules: Rules, jitter: Callable[[], float], outage: Outage) -> None:
        self._number = start.partition
        self._start = start
        self._rules = rules
        self._jitter = jitter
        self._outage = outage
        #: The wall clock less the core's clock, in seconds, as of the last tick.
        self.clock_offset = start.wall

    def wall(self, time: float) -> int:
        """Returns that time in milliseconds of the wall clock."""
        return FOREVER if time == NEVER else max(0, ceil((time + self.clock_offset) * 1000))

    def entry(self, info: RetryInfo, offset: int, now: float) -> Entry:
        """Returns the index entry of a record at `offset` that is read now."""
        due = self.due(info.due, info.why, now)
        return Entry(info.origin, offset, due, info.attempt, info.crashes, info.why)

    def due(self, wall: int, why: int, now: float) -> float:
        """Returns when a record that is read now is due; `wall`: the due time in its header (rules 3 and 4)."""
        if wall <= 0:
            return 0.0
        if wall >= FOREVER:
            return NEVER
        due, latest = wall / 1000 - self.clock_offset, now + self._longest(why)
        if due > latest:
            return latest
        return due if due > 0.0 else 0.0

    def _longest(self, why: int) -> float:
        return LONGEST_DELAY if why == Why.DELAYED else max(LATEST, self._rules.backoff.maximum)

    def failed(
        self,
        record: Record,
        key: bytes | None,
        why: Why,
        now: float,
        *,
        delay: float | None = None,
        error: str = "",
    ) -> Move:
        """Returns the move of a message whose delivery failed; `delay` REJECTED: its callback gave the message up."""
        if delay == REJECTED:
            return self._rejected(record, key, self._said(record, now, error), now)
        origin, attempt, crashes, since = record.offset(), 1, 0, 0
        if isinstance(record, RetryRecord):
            attempt, crashes, since = record.info.attempt, record.info.crashes, record.info.failed
        error = error or _NO_WORDS[why]
        why = why if delay is None else Why.DELAYED
        self._outage.failed(origin, first=attempt == 1)
        if not self._rules.policy.used_up(attempt + crashes):
            attempt += 1
        elif self._rules.policy.max_attempts == 1 or self._outage.may_use_up(now):
            return self._used_up(record, key, self._said(record, now, error), now)
        wait = self._rules.backoff.wait(attempt, self._jitter()) if delay is None else delay
        due, since = self.wall(now + wait), since or self.wall(now)
        topic_id = self._start.topic_id
        info = RetryInfo(topic_id, self._number, origin, attempt, crashes, due, why, since, error)
        move = self._move(record, key, info)
        move.leave_at = now + min(PATIENCE, SHARE * wait)
        return move

    def _rejected(self, record: Record, key: bytes | None, info: RetryInfo, now: float) -> Move:
        due = self.wall(now) if self._rules.policy.dead_letters else FOREVER
        return self._move(record, key, info._replace(attempt=info.attempt + 1, due=due, why=Why.REJECTED))

    def crashed(self, record: Record, key: bytes | None, now: float) -> Move:
        """Returns the move of a message that was the only suspect when its process died."""
        info = self._said(record, now, "its process died while it was the only suspect")
        info = info._replace(crashes=info.crashes + 1)
        if self._rules.policy.used_up(info.attempt - 1 + info.crashes):
            return self._used_up(record, key, info._replace(attempt=info.attempt - 1), now)
        due = self.wall(now + self._rules.backoff.wait(info.crashes + 1, self._jitter()))
        return self._move(record, key, info._replace(due=due, why=Why.CRASHED))

    def waited(self, record: Record, key: bytes | None) -> Move:
        """Returns the move of a message that waited for too long in home behind another one."""
        return self._move(record, key, self._info(record)._replace(why=Why.BACKLOG))

    def released(self, record: RetryRecord, key: bytes | None, now: float) -> Move:
        """Returns the move of a waiting message that is released: its attempts begin anew."""
        info = record.info._replace(attempt=1, crashes=0, due=self.wall(now), why=Why.REPLAYED)
        return self._move(record, key, info)

    def dropped(self, record: RetryRecord, key: bytes | None, now: float) -> Move:
        """Returns the dead letter of a message that was parked for ever, and that a request gives up."""
        move = self._move(record, key, record.info)
        move.death = self._death("dropped by a release, attempts used up", record.info.error, now)
        return move

    def is_spent(self, attempt: int, crashes: int, why: Why) -> bool:
        """Returns whether such a message must be dead-lettered, not delivered.

        The policy may have changed since the move was noted.
        """
        if why is Why.REJECTED:
            return self._rules.policy.dead_letters
        return why is Why.UNBURIED and self._rules.policy.used_up(attempt - 1 + crashes)

    def spent(self, record: RetryRecord, key: bytes | None, now: float) -> Move:
        """Returns its dead letter; if the policy now says so, a move to where the message is parked until released."""
        info = record.info._replace(attempt=record.info.attempt - 1)
        if self._rules.policy.on_exhausted is Exhausted.PARK:
            return self._used_up(record, key, info, now)
        move = self._move(record, key, info)
        move.death = self._death("attempts used up", info.error, now)
        if info.why is Why.REJECTED:
            move.death = move.death._replace(reason=f"rejected by the callback: {move.death.error}")
        return move

    def unreadable(self, record: StoredRecord, broken: Broken, now: float) -> Move:
        """Returns the dead letter of a record that isn't a message: the record as it is."""
        death = self._death(broken.reason, "", now)
        return Move(cast("Record", record), broken, key=None, source=record.offset(), death=death)

    def _used_up(self, record: Record, key: bytes | None, info: RetryInfo, now: float) -> Move:
        """Parks the message, as users call that, or moves it to where it becomes a dead letter (rule 2)."""
        if self._rules.policy.on_exhausted is Exhausted.PARK:
            return self._move(record, key, info._replace(due=FOREVER, why=Why.EXHAUSTED))
        unwritten = info._replace(attempt=info.attempt + 1, due=self.wall(now), why=Why.UNBURIED)
        return self._move(record, key, unwritten)

    def _death(self, reason: str, error: str, now: float) -> Death:
        name, _, text = error.partition(": ") if ": " in error else ("", "", error)
        rules = self._rules
        return Death(self._start.topic, rules.subscription, reason, name, text, self.wall(now))

    def _info(self, record: Record) -> RetryInfo:
        if isinstance(record, RetryRecord):
            return record.info
        return RetryInfo(self._start.topic_id, self._number, record.offset())

    def _said(self, record: Record, now: float, error: str) -> RetryInfo:
        info = self._info(record)
        return info._replace(error=error, failed=info.failed or self.wall(now))

    def _move(self, record: Record, key: bytes | None, info: RetryInfo) -> Move:
        source = record.retry_offset if isinstance(record, RetryRecord) else None
        return Move(record, info, key=key, source=source)


def headers_of(move: Move) -> list[Header]:
    """Returns the headers of the record that the move writes."""
    headers = cast("StoredRecord", move.record).headers()
    if move.death is not None:
        return dead_headers(headers, move.info, move.death)
    return (
        list(headers or ()) if isinstance(move.info, Broken) else retry_headers(headers, move.info, move.said)
    )
