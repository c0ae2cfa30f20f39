"""Decides which messages become dead letters, and when: connects a `moves.MoveQueue` with `retry_state`.

`moves` explains the two steps of dead-lettering. The second step takes its place among the partition's commits like any
other: a single commit is unanswered at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.log.records import Record
from kafka_pubsub.subscribe.formats.record import RetryInfo, Why
from kafka_pubsub.subscribe.partition.effects import Announce, Effect, News
from kafka_pubsub.subscribe.partition.events import Written
from kafka_pubsub.subscribe.partition.moves import DeadLetter, Move
from kafka_pubsub.subscribe.partition.retry_state import RetryState

__all__ = ["DeadLettering"]


class DeadLettering:
    """The dead-lettering of a partition's messages."""

    def __init__(self, retries: RetryState) -> None:
        self._retries = retries
        self._queue = retries.dead_letters
        #: Whether the log has taken the whole batch, so that the commit may join its transaction.
        self.written = False
        #: Whether that commit was sent.
        self.joined = False

    def due_at(self) -> float | None:
        """Returns when the next batch may be written; None: not before something else happens."""
        return None if self._retries.bodies.reading else self._queue.due_at()

    def write(self, now: float) -> Sequence[Move]:
        """Returns the dead letters to be written next; none if nothing may go."""
        if (due := self.due_at()) is None or now < due:
            return ()
        self.written = self.joined = False
        self._queue.load(now, lambda letter: self._record_of(letter, now))
        return self._moves()

    def _moves(self) -> Sequence[Move]:
        return [letter.move for letter in self._queue.unanswered if letter.move is not None]

    def _record_of(self, letter: DeadLetter, now: float) -> Record | None:
        """Makes the move if the body is in memory and the policy still wants a dead letter."""
        if letter.move is not None:
            return letter.message
        retries, bodies = self._retries, self._retries.bodies
        body = bodies.kept.get(letter.offset)
        if body is None:
            bodies.want(letter.offset, letter.key)
            return None
        move = retries.schedules.spent(body, letter.key, now)
        if move.death is None:  # the policy now parks such messages until released
            self._queue.take_back(letter.offset)
            self._leave(letter)
            retries.depart(move)
            return None
        letter.move = move
        return move.record

    def _leave(self, letter: DeadLetter) -> None:
        if letter.key is not None:
            self._retries.parking.arrives(letter.key, letter.origin)

    def answered(self, event: Written, now: float) -> Sequence[Effect]:
        """Takes the answer to `WriteDeadLetters`."""
        if event.taken:
            self.written = True
        else:
            self.aborted(event.refused, now, event.reason)
        return ()

    def finish(self) -> Sequence[Move]:
        """Returns the written dead letters, for the commit that finishes them and is unanswered from now on."""
        if not self.written or self.joined:
            return ()
        self.joined = True
        return self._moves()

    def stored(self, now: float) -> None:
        """Finishes the records that were dead-lettered."""
        retries = self._retries
        touched: dict[bytes, None] = {}
        self.written = self.joined = False
        letters = self._queue.stored()
        retries.finish([letter.offset for letter in letters])
        for letter in letters:
            retries.news.append(_news_of(letter))
            self._leave(letter)
            if letter.key is not None:
                touched[letter.key] = None
        retries.settle_all(touched, now)
        retries.followers.leave(touched)

    def aborted(self, refused: Mapping[int, str], now: float, reason: str = "") -> None:
        """Lets the records wait for another try."""
        batch = self._queue.unanswered
        refused = {at: why for at, why in refused.items() if at < len(batch)}
        for at, why in refused.items():
            self._retries.news.append(Announce(News.UNBURIED, why, batch[at].message))
        if not refused and reason:
            said = Announce(News.UNBURIED, f"{len(batch)} messages: {reason}")
            if len(batch) == 1:
                said = Announce(News.UNBURIED, reason, batch[0].message)
            self._retries.news.append(said)
        self.written = self.joined = False
        for letter in self._queue.aborted(refused, now):
            if letter.reread:
                letter.move = None
                self._retries.bodies.forget(letter.offset)


def _news_of(letter: DeadLetter) -> Announce:
    """Returns the news that the message is dead-lettered."""
    move = letter.move
    if move is None or move.death is None:
        return Announce(News.DEAD_LETTER, "", letter.message)
    rejected = isinstance(move.info, RetryInfo) and move.info.why is Why.REJECTED
    return Announce(News.REJECTED if rejected else News.DEAD_LETTER, move.death.reason, letter.message)
