"""Durable acks: for each ack with a waiter, which commit holds it, and whether the log accepted that commit.

Theory. An ack is in the log when a commit that calls its record finished was accepted, plain or in a transaction. Every
commit holds all messages noted as finished when it is made. So the next commit holds every noted ack, and its answer
decides about them. The ack's waiter moves the same way: from `_booked` to `_sent`, and then gets its answer.

Rules
1. A waiter hears that its ack is durable only after the answer to a commit that was made after the ack was noted.
2. An ack is noted when it arrives, though its callback may still run: the callback may wait for this very answer.
   The key stays with its lease runner until the callback has ended.
3. The acks of an inline run (`inline_lease`) are noted when the inline run has reported; until then they wait in
   `_ended_inline`.
4. A commit that wasn't accepted may be stored all the same: its acks are in the next commit too, and in doubt until
   then.
5. When the partition is lost, acks that were in no commit aren't stored; for the others the outcome is unknown.
6. Every wait ends: after `PATIENCE` a waiter hears that there is no answer. The ack itself stays noted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafka_pubsub.errors import InvariantViolated
from kafka_pubsub.subscribe.partition.commits import Commits
from kafka_pubsub.subscribe.partition.effects import Durable, Effect, Stale, Undone, Unstored
from kafka_pubsub.subscribe.partition.events import Ask, Awaited, Event, Passed, Tick
from kafka_pubsub.subscribe.partition.lease_outcomes import LeaseReports
from kafka_pubsub.subscribe.partition.leases import Leases, LeaseState

__all__ = ["PATIENCE", "PROMPT", "Durability"]

#: Seconds that a commit waits for further acks while callers wait for it: the acks of callbacks that run side by side
#: share a commit. They are few beside the time that the commit itself takes.
PROMPT = 0.002
#: Seconds after which a waiter hears that there is no answer: a change of the group's coordinator takes some ten.
PATIENCE = 30.0

#: A waiter, and the time since which it waits.
_Waiter = tuple[object, float]


class Durability:
    """The waiters of a partition under one ownership."""

    def __init__(self, leases: Leases, reports: LeaseReports, commits: Commits, *, prompt: bool) -> None:
        self._leases = leases
        self._reports = reports
        self._commits = commits
        #: Whether commits are made sooner while a caller waits for its ack.
        self._prompt = prompt
        #: False: no ack has a waiter, and there is no answer to pass on.
        self.busy = False
        #: Acks with waiters from an inline run that hasn't reported yet.
        self._ended_inline: list[tuple[Ask, float]] = []
        #: Waiters of acks that are noted as finished, and in no commit yet.
        self._booked: deque[_Waiter] = deque()
        #: Waiters of acks in the commit that is unanswered.
        self._sent: deque[_Waiter] = deque()
        #: Waiters of acks in a commit that wasn't accepted, and in no later commit yet.
        self._doubtful: deque[_Waiter] = deque()
        self._answers: list[Effect] = []
        commits.on_made = self._made
        commits.on_answered = self._answered

    @property
    def waiting(self) -> int:
        """The number of acks that have a waiter."""
        return len(self._ended_inline) + len(self._booked) + len(self._sent) + len(self._doubtful)

    def awaited(self, event: Awaited, now: float) -> Sequence[Effect]:
        """Takes acks whose callers wait until they are durable."""
        self.busy = True
        for ask in event.asks:
            self._take(ask, now)
        return ()

    def after(self, event: Event, effects: Sequence[Effect], now: float) -> Sequence[Effect]:
        """Returns the effects, and answers to waiters, after an event that the partition has handled."""
        if isinstance(event, Passed) and self._ended_inline:
            asks, self._ended_inline = self._ended_inline, []
            for ask, since in asks:
                self._take(ask, since)
        elif isinstance(event, Tick):
            self._lose_patience(now)
        if self._prompt and (self._booked or self._doubtful):
            self._commits.soon(now + PROMPT)
        answers, self._answers = self._answers, []
        self.busy = self.waiting > 0
        return [*effects, *answers] if answers else effects

    def lost(self) -> None:
        """Answers all waiters: the partition is no longer this member's."""
        unknown = [waiter for waiter, _ in (*self._doubtful, *self._sent)]
        gone = [ask.waiter for ask, _ in self._ended_inline] + [waiter for waiter, _ in self._booked]
        for each in (self._ended_inline, self._booked, self._sent, self._doubtful):
            each.clear()
        self._tell(unknown, Unstored.UNKNOWN)
        self._tell(gone, Unstored.GONE)

    def _take(self, ask: Ask, since: float) -> None:
        lease = ask.lease
        if lease.epoch != self._reports.epoch:
            self._late(ask)
        elif lease is self._leases.inline_lease or self._is_unreported(ask):
            self._ended_inline.append((ask, since))
        elif self._reports.acked(lease, ask.record):
            self._commits.dirty = True  # the ack may have been noted before
            self._booked.append((ask.waiter, since))
        else:
            self._late(ask)

    def _is_unreported(self, ask: Ask) -> bool:
        """Returns whether an inline run has left the ask's lease and hasn't reported so yet."""
        return ask.lease.state is LeaseState.RUNNING and ask.lease not in self._leases.active

    def _late(self, ask: Ask) -> None:
        self._answers.append(Stale(1))
        self._tell([ask.waiter], Unstored.LATE)

    def _tell(self, waiters: Sequence[object], why: Unstored | None) -> None:
        if waiters:
            self._answers.append(Durable(waiters) if why is None else Undone(waiters, why))

    # Commits

    def _made(self) -> None:
        if self.busy:
            for some in (self._doubtful, self._booked):
                self._sent += some
                some.clear()

    def _answered(self, accepted: bool) -> None:
        if not self._sent:
            return
        if accepted:
            self._tell([waiter for waiter, _ in self._sent], None)
        else:
            self._doubtful.extendleft(reversed(self._sent))
        self._sent.clear()

    def _lose_patience(self, now: float) -> None:
        given_up = [ask.waiter for ask, since in self._ended_inline if since + PATIENCE <= now]
        self._ended_inline = [each for each in self._ended_inline if each[1] + PATIENCE > now]
        for some in (self._doubtful, self._sent, self._booked):
            while some and some[0][1] + PATIENCE <= now:
                given_up.append(some.popleft()[0])
        self._tell(given_up, Unstored.UNANSWERED)

    def check(self) -> None:
        """Raises `InvariantViolated` if a rule is broken."""
        if self._sent and self._commits.in_flight is None:
            raise InvariantViolated("acks are in a commit that isn't in flight")
        if self._doubtful and not self._commits.dirty and self._commits.in_flight is None:
            raise InvariantViolated("acks in doubt, and nothing to commit")
        if self._booked and not self._commits.dirty:
            raise InvariantViolated("acks are booked, and nothing to commit")
        if self.waiting and not self.busy:
            raise InvariantViolated("acks have waiters, and `busy` is off, so no answer would reach them")
