"""Decides what becomes a dead letter, and when: connects `dead_letter_queue` with `retry_state`.

`dead_letter_queue` explains the two steps of dead-lettering and its rules. The second step takes its place among the
partition's commits like any other: one is unanswered at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.core.effects import Announce, Effect, News
from kafka_pubsub.core.events import Written
from kafka_pubsub.core.retry.dead_letter_queue import PendingDeadLetter
from kafka_pubsub.core.retry.moves import BATCH_BYTES, Move
from kafka_pubsub.core.retry.retry_state import RetryState

__all__ = ["DeadLettering"]


class DeadLettering:
    """The dead-lettering of one partition's messages."""

    def __init__(self, retries: RetryState) -> None:
        self._retries = retries
        self._burials = retries.burials

    def write(self, now: float) -> Sequence[Move]:
        """Returns the dead letters to be written next; none if nothing may go."""
        if (due := self._burials.due_at()) is None or now < due:
            return ()
        batch: list[PendingDeadLetter] = []
        size, missing = 0, False
        for burial in self._burials.candidates(now):
            if burial.move is None and not self._find_body(burial, now):
                missing = missing or burial.offset in self._burials.waiting
                continue
            assert burial.move is not None
            size += len(burial.move.record)
            if batch and size > BATCH_BYTES:
                break
            batch.append(burial)
        if batch:
            self._burials.load(batch)
        elif missing:
            self._burials.reading = True
        else:
            self._burials.look()
        return [burial.move for burial in batch if burial.move is not None]

    def _find_body(self, burial: PendingDeadLetter, now: float) -> bool:
        """Makes the move if the body is in memory and the policy still says that it is to be dead-lettered."""
        retries = self._retries
        body = retries.bodies.kept.get(burial.offset)
        if body is None:
            retries.bodies.want(burial.offset, burial.key)
            return False
        move = retries.fates.spent(body, burial.key, now)
        if move.death is None:  # the policy now parks such messages until released
            self._burials.take_back(burial.offset)
            self._leave(burial)
            retries.depart(move)
            return False
        burial.move = move
        return True

    def _leave(self, burial: PendingDeadLetter) -> None:
        if burial.key is not None:
            self._retries.parking.arrives(burial.key, burial.origin)

    def written(self, event: Written, now: float) -> Sequence[Effect]:
        """Takes the answer to `WriteDeadLetters`."""
        if event.taken:
            self._burials.written = True
        else:
            self.aborted(event.refused, now, event.reason)
        return ()

    def finish(self) -> Sequence[Move]:
        """Returns the written dead letters, for the commit that finishes them and is unanswered from now on."""
        burials = self._burials
        if not burials.written or burials.flying:
            return ()
        burials.flying = True
        return [burial.move for burial in burials.out if burial.move is not None]

    def stored(self, now: float) -> None:
        """Finishes the records that were dead-lettered."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        for burial in self._burials.stored():
            retries.books.finish(burial.offset)
            retries.bodies.forget(burial.offset)
            retries.suspects.finished((burial.offset,))
            reason = burial.move.death.reason if burial.move is not None and burial.move.death else ""
            retries.news.append(Announce(News.DEAD_LETTER, f"offset {burial.origin}: {reason}"))
            self._leave(burial)
            if burial.key is not None:
                touched[burial.key] = None
        retries.settle_all(touched, now)

    def aborted(self, refused: Mapping[int, str], now: float, reason: str = "") -> None:
        """Lets the records wait for another try."""
        batch = self._burials.out
        refused = {at: why for at, why in refused.items() if at < len(batch)}
        for at, why in refused.items():
            self._retries.news.append(Announce(News.UNBURIED, f"offset {batch[at].origin}: {why}"))
        if not refused and reason:
            first = f"offset {batch[0].origin}" if len(batch) == 1 else f"{len(batch)} messages"
            self._retries.news.append(Announce(News.UNBURIED, f"{first}: {reason}"))
        for burial in self._burials.aborted(refused, now):
            if burial.reread:
                burial.move = None
                self._retries.bodies.forget(burial.offset)
