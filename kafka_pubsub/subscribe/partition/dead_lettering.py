"""Decides what becomes a dead letter, and when: connects `dead_letter_queue` with `retry_state`.

`dead_letter_queue` explains the two steps of dead-lettering and its rules. The second step takes its place among the
partition's commits like any other: one is unanswered at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.subscribe.partition.dead_letter_queue import PendingDeadLetter
from kafka_pubsub.subscribe.partition.effects import Announce, Effect, News
from kafka_pubsub.subscribe.partition.events import Written
from kafka_pubsub.subscribe.partition.moves import BATCH_BYTES, Move
from kafka_pubsub.subscribe.partition.retry_state import RetryState

__all__ = ["DeadLettering"]


class DeadLettering:
    """The dead-lettering of one partition's messages."""

    def __init__(self, retries: RetryState) -> None:
        self._retries = retries
        self._queue = retries.dead_letters

    def write(self, now: float) -> Sequence[Move]:
        """Returns the dead letters to be written next; none if nothing may go."""
        if (due := self._queue.due_at()) is None or now < due:
            return ()
        batch: list[PendingDeadLetter] = []
        size, missing = 0, False
        for pending in self._queue.candidates(now):
            if pending.move is None and not self._find_body(pending, now):
                missing = missing or pending.offset in self._queue.waiting
                continue
            assert pending.move is not None
            size += len(pending.move.record)
            if batch and size > BATCH_BYTES:
                break
            batch.append(pending)
        if batch:
            self._queue.load(batch)
        elif missing:
            self._queue.reading = True
        else:
            self._queue.look()
        return [pending.move for pending in batch if pending.move is not None]

    def _find_body(self, pending: PendingDeadLetter, now: float) -> bool:
        """Makes the move if the body is in memory and the policy still says that it is to be dead-lettered."""
        retries = self._retries
        body = retries.bodies.kept.get(pending.offset)
        if body is None:
            retries.bodies.want(pending.offset, pending.key)
            return False
        move = retries.schedules.spent(body, pending.key, now)
        if move.death is None:  # the policy now parks such messages until released
            self._queue.take_back(pending.offset)
            self._leave(pending)
            retries.depart(move)
            return False
        pending.move = move
        return True

    def _leave(self, pending: PendingDeadLetter) -> None:
        if pending.key is not None:
            self._retries.parking.arrives(pending.key, pending.origin)

    def written(self, event: Written, now: float) -> Sequence[Effect]:
        """Takes the answer to `WriteDeadLetters`."""
        if event.taken:
            self._queue.written = True
        else:
            self.aborted(event.refused, now, event.reason)
        return ()

    def finish(self) -> Sequence[Move]:
        """Returns the written dead letters, for the commit that finishes them and is unanswered from now on."""
        dead_letters = self._queue
        if not dead_letters.written or dead_letters.unanswered:
            return ()
        dead_letters.unanswered = True
        return [pending.move for pending in dead_letters.out if pending.move is not None]

    def stored(self, now: float) -> None:
        """Finishes the records that were dead-lettered."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        for pending in self._queue.stored():
            retries.finished_runs.finish(pending.offset)
            retries.bodies.forget(pending.offset)
            retries.suspects.finished((pending.offset,))
            reason = pending.move.death.reason if pending.move is not None and pending.move.death else ""
            retries.news.append(Announce(News.DEAD_LETTER, reason, pending.message))
            self._leave(pending)
            if pending.key is not None:
                touched[pending.key] = None
        retries.settle_all(touched, now)
        retries.followers.leave(touched)

    def aborted(self, refused: Mapping[int, str], now: float, reason: str = "") -> None:
        """Lets the records wait for another try."""
        batch = self._queue.out
        refused = {at: why for at, why in refused.items() if at < len(batch)}
        for at, why in refused.items():
            self._retries.news.append(Announce(News.UNBURIED, why, batch[at].message))
        if not refused and reason:
            said = Announce(News.UNBURIED, f"{len(batch)} messages: {reason}")
            if len(batch) == 1:
                said = Announce(News.UNBURIED, reason, batch[0].message)
            self._retries.news.append(said)
        for pending in self._queue.aborted(refused, now):
            if pending.reread:
                pending.move = None
                self._retries.bodies.forget(pending.offset)
